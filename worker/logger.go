package worker

import (
	"context"
	"log/slog"
)

// harmless is the logger without its panics: lines are written where nothing else is the user's code, and nothing may fail.
func harmless(l *slog.Logger) *slog.Logger { return slog.New(mild{l.Handler()}) }

// mild is a handler that loses the line with which it panics.
type mild struct{ h slog.Handler }

func (m mild) Enabled(ctx context.Context, level slog.Level) (on bool) {
	_ = catch(func() error { on = m.h.Enabled(ctx, level); return nil })
	return on
}

func (m mild) Handle(ctx context.Context, r slog.Record) error {
	return catch(func() error { return m.h.Handle(ctx, r) })
}

func (m mild) WithAttrs(attrs []slog.Attr) slog.Handler {
	return m.with(func() slog.Handler { return m.h.WithAttrs(attrs) })
}

func (m mild) WithGroup(name string) slog.Handler {
	return m.with(func() slog.Handler { return m.h.WithGroup(name) })
}

func (m mild) with(f func() slog.Handler) slog.Handler {
	_ = catch(func() error { m.h = f(); return nil })
	return m
}
