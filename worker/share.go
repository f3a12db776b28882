package worker

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/stint-go/stint/store"
)

// Pool is a set of workers that several instances share: those whose handlers are registered with [In]. A pool that none is
// in costs nothing.
//
// A worker that is free asks one instance at a time, and none that is known to have no job that may run now. While several
// have some, which one is asked is decided for each job: in proportion to the weights, so that none starves, or, in a
// Strict pool, always the one that was registered first.
type Pool struct {
	// Name is what In calls it; no two have the same.
	Name string
	// Concurrency is how many jobs run at once, of all its instances together; by default 10.
	Concurrency int
	// Strict lets an instance have workers only while those registered before it, in this pool, have no job that may run, or
	// can't be asked: one that never runs dry starves those after it.
	Strict bool
}

func validatePools(pools []Pool) error {
	var errs []error
	seen := map[string]bool{}
	for i, p := range pools {
		switch {
		case p.Name == "":
			errs = append(errs, invalid("pool %d has no name", i+1))
		case seen[p.Name]:
			errs = append(errs, invalid("there are two pools %q", p.Name))
		}
		seen[p.Name] = true
		if p.Concurrency < 0 {
			errs = append(errs, invalid("pool %q: concurrency %d is negative", p.Name, p.Concurrency))
		}
	}
	return errors.Join(errs...)
}

// maxWeight bounds the weight of an instance in its pool.
const maxWeight = 1_000_000

// In has the instance's jobs run by a pool of the Config, which it shares with others. The weight, 1 to 1,000,000, is its part
// of the pool while others have jobs as well: of three instances with the weights 6, 3 and 1 the first starts 6 of 10 jobs. In a
// Strict pool the order of registration counts instead. All other options are the instance's own as ever, but for
// Concurrency, which is the pool's.
func In(pool string, weight int) HandleOption {
	return handleOption(func(r *registration) error {
		switch {
		case pool == "":
			return invalid("the name of the pool is empty")
		case weight < 1 || weight > maxWeight:
			return invalid("the weight %d is outside 1 to %d", weight, maxWeight)
		}
		r.pool, r.weight = pool, weight
		return nil
	})
}

// join completes the registration by what the pool that it is in says.
func (r *registration) join(pools []Pool) error {
	if r.pool == "" {
		r.concurrency = cmp.Or(r.concurrency, DefaultConcurrency)
		return nil
	}
	i := slices.IndexFunc(pools, func(p Pool) bool { return p.Name == r.pool })
	switch {
	case i < 0:
		return invalid("there is no pool %q in the Config", r.pool)
	case r.concurrency != 0:
		return invalid("both In and Concurrency are given, but the concurrency is that of the pool %q", r.pool)
	}
	r.concurrency, r.strict = cmp.Or(pools[i].Concurrency, DefaultConcurrency), pools[i].Strict
	return nil
}

// GlobalLimit says how many of the instance's jobs run at once, in all processes together: at least 1. What counts are the
// leases: a job of a process that died counts until its lease is ended, and nothing is left to be repaired. Each process
// goes by its own option, so that all have to say the same. A job that has to wait keeps its place, and no attempt is charged.
func GlobalLimit(n int) HandleOption {
	return handleOption(func(r *registration) error {
		if n < 1 {
			return invalid("the limit %d is less than 1", n)
		}
		r.terms.Limit = n
		return nil
	})
}

// Rate says how often the instance's jobs are started, by all processes together: n times in a time of per, evenly spread
// over it, both at least 1 (of per, a millisecond). What a late claim has missed is made up for, up to 100 ms of it. All processes
// have to say the same. A job that has to wait keeps its place, and no attempt is charged.
func Rate(n int, per time.Duration) HandleOption {
	return handleOption(func(r *registration) error {
		if n < 1 || per < time.Millisecond {
			return invalid("the rate of %d per %v: 1 and a millisecond are the least", n, per)
		}
		r.terms.Rate = store.Rate{N: n, Per: per}
		return nil
	})
}
