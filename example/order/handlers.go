package main

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/stint-go/stint/worker"
)

// order is what a job of the instance "order" is given.
type order struct {
	Number string
	Amount int
}

// shop is the world outside, which has effects.
type shop struct{ options }

// register adds the handlers of both instances.
func register(sup *worker.Supervisor, s *shop) {
	worker.HandleResult(sup, "order", s.fulfil)
	worker.HandleResult(sup, "render", s.render)
}

// fulfil is called anew after each crash and each wait; what is committed is not done again.
func (s *shop) fulfil(ctx context.Context, o order) (string, error) {
	receipt, err := worker.Step(ctx, "charge", func(ctx context.Context) (string, error) {
		return "receipt " + o.Number, s.effect("charge", worker.IdempotencyKey(ctx))
	})
	if err != nil {
		return "", err
	}
	s.crash("charge")

	err = worker.Do(ctx, "reserve", func(ctx context.Context) error { return s.effect("reserve", worker.IdempotencyKey(ctx)) })
	if err != nil {
		return "", err
	}
	s.crash("reserve")

	label, err := worker.Async[string](ctx, "render", "render", o.Number)
	if err != nil {
		return "", err
	}
	s.crash("render")
	file, err := label.Wait(ctx) // parks: no worker is held meanwhile
	if err != nil {
		return "", err
	}

	if err := worker.Sleep(ctx, "cool-off", s.pause); err != nil {
		return "", err
	}
	s.crash("cool-off")

	err = worker.Do(ctx, "notify", func(ctx context.Context) error { return s.effect("notify", worker.IdempotencyKey(ctx)) })
	if err != nil {
		return "", err
	}
	s.crash("notify")
	return receipt + ", " + file, nil
}

// render runs as a job of its own, in whichever process serves its instance.
func (s *shop) render(ctx context.Context, number string) (string, error) {
	return "label-" + number + ".png", s.effect("render", worker.IdempotencyKey(ctx))
}

// effect does something to the world: a line in a file. A real service would be given the key, and do the thing once for each.
func (s *shop) effect(what, key string) error {
	fmt.Println(what)
	f, err := os.OpenFile(s.effects, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, what, key); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// crash kills the process, if it was told to do so here.
func (s *shop) crash(step string) {
	if s.crashAt == step {
		fmt.Println("killed after", step)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
