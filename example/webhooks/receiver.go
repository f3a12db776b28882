package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// listen starts a receiver on loopback.
func listen(h http.Handler) *httptest.Server { return httptest.NewServer(h) }

// steady takes every event.
type steady struct{}

func (steady) ServeHTTP(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// When a shaky receiver is down: after its first 20 requests, for the next 9.
const (
	downAfter = 20
	downFor   = 9
)

// shaky misbehaves in all the usual ways.
type shaky struct {
	mu       sync.Mutex
	requests int
	aborted  int
	tries    map[int]int       // by event
	taken    map[string]int    // how often each event was delivered, by its id
	early    int               // requests that came before they were asked to
	back     map[int]time.Time // when an event was asked to come back
}

func (s *shaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var e struct{ Number int }
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	code := s.receive(e.Number, r.Header.Get("Webhook-Id"))
	switch code {
	case 0:
		panic(http.ErrAbortHandler) // closes the connection
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(code)
}

// receive decides on an answer; 0 is none.
func (s *shaky) receive(number int, key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tries == nil {
		s.tries, s.taken, s.back = map[int]int{}, map[string]int{}, map[int]time.Time{}
	}
	s.requests++
	if s.requests > downAfter && s.requests <= downAfter+downFor {
		s.aborted++
		return 0
	}
	if time.Now().Before(s.back[number]) {
		s.early++
	}
	s.tries[number]++
	first := s.tries[number] == 1
	switch {
	case number%10 == 9:
		return http.StatusGone
	case number%10 == 3 && first:
		s.back[number] = time.Now().Add(time.Second)
		return http.StatusTooManyRequests
	case number%10 == 6 && first:
		s.taken[key]++
		return http.StatusInternalServerError // though it has the event
	}
	s.taken[key]++
	return http.StatusNoContent
}
