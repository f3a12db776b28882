package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// instance names the kind of job, and its queue.
const instance = "texts/count"

// text is the payload of a job.
type text struct {
	Body  string
	Pause time.Duration // to have something to look at
}

// result is what comes of it.
type result struct {
	Words    int `json:"words"`
	Distinct int `json:"distinct"`
}

var errNotText = errors.New("that is not UTF-8 text")

// count is the handler.
func count(ctx context.Context, t text) (result, error) {
	select {
	case <-time.After(t.Pause):
	case <-ctx.Done():
		return result{}, ctx.Err()
	}
	if !utf8.ValidString(t.Body) || strings.ContainsRune(t.Body, utf8.RuneError) { // to JSON it was one already
		return result{}, retry.Permanent(errNotText)
	}
	words, distinct := strings.Fields(strings.ToLower(t.Body)), map[string]bool{}
	for _, w := range words {
		distinct[w] = true
	}
	return result{len(words), len(distinct)}, nil
}

// api is what clients talk to.
type api struct {
	client *worker.Client
	st     *store.Store
}

func (a *api) register(mux *http.ServeMux) {
	mux.HandleFunc("POST /texts", a.accept(instance))
	mux.HandleFunc("POST /books", a.accept(books))
	mux.HandleFunc("GET /texts/{id}", a.tell)
	mux.HandleFunc("GET /books/{id}", a.tell)
}

// accept enqueues for an instance. The caller has an answer as soon as Redis has the job.
func (a *api) accept(instance string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 512<<10))
		if err != nil {
			answer(w, http.StatusRequestEntityTooLarge, map[string]string{"error": err.Error()})
			return
		}
		pause, _ := time.ParseDuration(r.URL.Query().Get("pause"))
		id, err := a.client.Enqueue(r.Context(), instance, text{string(body), min(pause, 10*time.Second)})
		switch {
		case errors.Is(err, store.ErrInvalid):
			answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		case err != nil: // Redis is away, or refuses: the caller may try again
			answer(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
		default:
			answer(w, http.StatusAccepted, map[string]string{"id": id.String()})
		}
	}
}

// tell says how far a job is.
func (a *api) tell(w http.ResponseWriter, r *http.Request) {
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	job, err := a.st.Get(r.Context(), id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		answer(w, http.StatusNotFound, map[string]string{"error": err.Error()})
	case err != nil:
		answer(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
	case job.State == store.Done:
		out, err := worker.ResultOf[result](job)
		if err != nil {
			answer(w, http.StatusInternalServerError, map[string]string{"error": err.Error()})
			return
		}
		answer(w, http.StatusOK, struct {
			State store.State `json:"state"`
			result
		}{job.State, out})
	default:
		answer(w, http.StatusOK, map[string]string{"state": string(job.State), "error": job.LastError})
	}
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
