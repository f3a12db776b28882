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

func ExampleLinear() {
	p := retry.Linear(5*time.Second, 12*time.Second)
	for attempt := 1; attempt <= 3; attempt++ {
		delay, _ := p.Next(attempt, errors.New("busy"))
		fmt.Println(attempt, delay)
	}
	// Output:
	// 1 5s
	// 2 10s
	// 3 12s
}

func ExampleSchedule() {
	p := retry.Schedule(time.Second, time.Minute)
	for attempt := 1; attempt <= 3; attempt++ {
		fmt.Println(p.Next(attempt, errors.New("busy")))
	}
	// Output:
	// 1s true
	// 1m0s true
	// 0s false
}

// Whoever is locked out tries again all day, everybody else a few times.
func ExampleWhen() {
	locked := errors.New("locked out")
	isLocked := func(err error) bool { return errors.Is(err, locked) }
	p := retry.When(isLocked, retry.Fixed(time.Hour), retry.Limit(3, retry.Fixed(time.Second)))
	fmt.Println(p.Next(7, locked))
	fmt.Println(p.Next(1, errors.New("busy")))
	fmt.Println(p.Next(3, errors.New("busy")))
	// Output:
	// 1h0m0s true
	// 1s true
	// 0s false
}

// The retries of everything that calls one service are at most a tenth of what is new, however broken it is.
func ExampleBudget() {
	p := retry.Budget(0.1, retry.Fixed(time.Second))
	var longest time.Duration
	for range 100 { // retries that fail all at once, while next to nothing is new
		delay, _ := p.Next(2, errors.New("connection refused"))
		longest = max(longest, delay)
	}
	fmt.Println(longest > time.Minute)
	// Output: true
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
