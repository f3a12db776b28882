package retry_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint/retry"
)

func ExampleFixed() {
	delay, again := retry.Fixed(30*time.Second).Next(1, errors.New("busy"))
	fmt.Println(delay, again)
	// Output: 30s true
}

func ExampleExponential() {
	p := retry.Exponential(time.Second, 10*time.Second)
	for attempt := 1; attempt <= 5; attempt++ {
		delay, _ := p.Next(attempt, errors.New("busy"))
		fmt.Println(attempt, delay)
	}
	// Output:
	// 1 1s
	// 2 2s
	// 3 4s
	// 4 8s
	// 5 10s
}

func ExampleLimit() {
	p := retry.Limit(3, retry.Fixed(time.Second))
	for attempt := 1; attempt <= 3; attempt++ {
		_, again := p.Next(attempt, errors.New("busy"))
		fmt.Println(attempt, again)
	}
	// Output:
	// 1 true
	// 2 true
	// 3 false
}

func ExamplePermanent() {
	handle := func(address string) error {
		if address == "" {
			return retry.Permanent(errors.New("no address")) // no later attempt can help
		}
		return nil
	}
	err := fmt.Errorf("sending: %w", handle(""))
	fmt.Println(err, retry.IsPermanent(err))
	// Output: sending: no address true
}

func ExampleAfter() {
	// A service that answers "too many requests, ask again in 90 seconds".
	err := fmt.Errorf("calling: %w", retry.After(90*time.Second, errors.New("too many requests")))
	delay, ok := retry.Delay(err)
	fmt.Println(err, delay, ok)
	// Output: calling: too many requests 1m30s true
}

// overnight follows another policy by day and waits for the morning when the office is closed.
type overnight struct{ retry.Policy }

func (o overnight) Next(attempt int, err error) (time.Duration, bool) {
	delay, again := o.Policy.Next(attempt, err)
	if errors.Is(err, errClosed) {
		delay = 8 * time.Hour
	}
	return delay, again
}

var errClosed = errors.New("closed for the night")

// A policy of one's own builds on another.
func ExamplePolicy() {
	p := overnight{retry.Limit(5, retry.Fixed(time.Minute))}
	fmt.Println(p.Next(1, errors.New("busy")))
	fmt.Println(p.Next(2, errClosed))
	// Output:
	// 1m0s true
	// 8h0m0s true
}
