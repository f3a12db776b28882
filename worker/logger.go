package worker

import (
	"context"
	"log/slog"
)

// harmless is the logger without its panics and its Goexits, which cost a goroutine a line: lines are written where nothing else is the
// user's code, and nothing may fail.
func harmless(l *slog.Logger) *slog.Logger { return slog.New(mild{l.Handler()}) }

// mild is a handler that loses the line with which it panics or ends its goroutine.
type mild struct{ h slog.Handler }

func (m mild) Enabled(ctx context.Context, level slog.Level) (on bool) {
	_ = guard(func() error { on = m.h.Enabled(ctx, level); return nil })
	return on
}

func (m mild) Handle(ctx context.Context, r slog.Record) error {
	return guard(func() error { return m.h.Handle(ctx, r) })
}

func (m mild) WithAttrs(attrs []slog.Attr) slog.Handler {
	return m.with(func() slog.Handler { return m.h.WithAttrs(attrs) })
}

func (m mild) WithGroup(name string) slog.Handler {
	return m.with(func() slog.Handler { return m.h.WithGroup(name) })
}

func (m mild) with(f func() slog.Handler) slog.Handler {
	_ = guard(func() error { m.h = f(); return nil })
	return m
}
