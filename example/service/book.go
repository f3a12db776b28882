package main

import (
	"context"
	"log/slog"
	"strings"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// A book is counted by jobs of its chapters, and each report by the clock.
const (
	books   = "books/count"
	reports = "reports"
)

// countBook splits a book at its empty lines and has each chapter counted as a job of its own, by whichever process is free. It holds no
// worker meanwhile.
func countBook(ctx context.Context, book text) (result, error) {
	chapters, err := worker.Step(ctx, "split", func(context.Context) ([]text, error) {
		var all []text
		for _, chapter := range strings.Split(book.Body, "\n\n") {
			all = append(all, text{Body: chapter})
		}
		return all, nil
	})
	if err != nil {
		return result{}, err
	}
	counting, err := worker.AsyncEach[result](ctx, "chapter", instance, chapters)
	if err != nil {
		return result{}, err
	}
	counted, err := worker.WaitAll(ctx, counting)
	if err != nil {
		return result{}, err
	}
	var sum result
	for _, r := range counted {
		sum.Words += r.Words
		sum.Distinct = max(sum.Distinct, r.Distinct) // of the richest chapter
	}
	return sum, nil
}

// report logs what is in the store. Of all the processes one does, at each tick.
func report(st *store.Store, log *slog.Logger) func(context.Context, struct{}) error {
	return func(ctx context.Context, _ struct{}) error {
		all, err := st.Stats(ctx)
		for _, s := range all {
			log.InfoContext(ctx, "report", "instance", s.Instance, "todo", s.Todo, "done", s.Done, "dead", s.Dead)
		}
		return err
	}
}
