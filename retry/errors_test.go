package retry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint/retry"
)

func TestWrappersAreFoundThroughAnyWrapping(t *testing.T) {
	for _, c := range []struct {
		name      string
		wrap      func(error) error
		permanent bool
		delay     time.Duration
		delayed   bool
	}{
		{"plain", func(e error) error { return e }, false, 0, false},
		{"permanent", retry.Permanent, true, 0, false},
		{"permanent, wrapped", func(e error) error { return fmt.Errorf("a: %w", fmt.Errorf("b: %w", retry.Permanent(e))) }, true, 0, false},
		{"permanent, joined", func(e error) error { return errors.Join(errors.New("other"), retry.Permanent(e)) }, true, 0, false},
		{"after", func(e error) error { return retry.After(time.Minute, e) }, false, time.Minute, true},
		{"after zero", func(e error) error { return retry.After(0, e) }, false, 0, true},
		{"after, negative is zero", func(e error) error { return retry.After(-time.Minute, e) }, false, 0, true},
		{"after, wrapped", func(e error) error { return fmt.Errorf("a: %w", retry.After(time.Minute, e)) }, false, time.Minute, true},
		{"after, the outermost counts", func(e error) error {
			return retry.After(time.Minute, fmt.Errorf("a: %w", retry.After(time.Hour, e)))
		}, false, time.Minute, true},
		{"both", func(e error) error { return retry.After(time.Minute, retry.Permanent(e)) }, true, time.Minute, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.wrap(context.DeadlineExceeded)
			if got := retry.IsPermanent(err); got != c.permanent {
				t.Errorf("permanent %v, want %v", got, c.permanent)
			}
			if d, ok := retry.Delay(err); d != c.delay || ok != c.delayed {
				t.Errorf("delay %v, %v; want %v, %v", d, ok, c.delay, c.delayed)
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error("the wrapped error is not found any more")
			}
		})
	}
}

func TestWrappersKeepTheText(t *testing.T) {
	err := retry.After(time.Second, retry.Permanent(errors.New("disk full")))
	if err.Error() != "disk full" {
		t.Errorf("text %q", err)
	}
}

func TestNoErrorStaysNoError(t *testing.T) {
	if err := retry.Permanent(nil); err != nil {
		t.Errorf("Permanent(nil) is %v", err)
	}
	if err := retry.After(time.Second, nil); err != nil {
		t.Errorf("After(1s, nil) is %v", err)
	}
	if retry.IsPermanent(nil) {
		t.Error("nil is permanent")
	}
	if _, ok := retry.Delay(nil); ok {
		t.Error("nil has a delay")
	}
}
