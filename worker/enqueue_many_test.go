package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

func TestWhatIsEnqueuedAtTheSameTimeTravelsTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		r.accepts(c, "images", 0)
		before, n := r.fault.Seen(), 500
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if _, err := c.Enqueue(t.Context(), "images", i); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if sent := r.fault.Seen() - before; sent > n/5 {
			t.Errorf("%d requests for %d jobs", sent, n)
		}
		if got := r.stats("images").Todo; got != int64(n+1) {
			t.Errorf("%d jobs, want %d", got, n+1)
		}
	})
}

func TestManyAreAcceptedEachByItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		known, twice := r.accepts(c, "images", 0), uuid.New()
		names, reqs := []string{"good", "known", "mail", "twice", "again"}, []worker.Request{
			{Instance: "images", Payload: 1, Options: []worker.EnqueueOption{worker.Priority(7)}},
			{Instance: "images", Payload: 2, Options: []worker.EnqueueOption{worker.ID(known)}},
			{Instance: "mail", Payload: 3},
			{Instance: "images", Payload: 4, Options: []worker.EnqueueOption{worker.ID(twice)}},
			{Instance: "images", Payload: 5, Options: []worker.EnqueueOption{worker.ID(twice)}},
		}
		want := []error{nil, store.ErrExists, nil, nil, store.ErrExists}
		for name, bad := range badJobs {
			names, reqs, want = append(names, name), append(reqs, bad), append(want, store.ErrInvalid)
		}
		results, err := c.EnqueueMany(t.Context(), reqs)
		if !errors.Is(err, store.ErrExists) || !errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrServer) {
			t.Errorf("%v, want both ErrExists and ErrInvalid", err)
		}
		if text := fmt.Sprintf("%d of %d jobs", 2+len(badJobs), len(reqs)); !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q in it", err, text)
		}
		for i, got := range results {
			if !errors.Is(got.Err, want[i]) {
				t.Errorf("%s: %v, want %v", names[i], got.Err, want[i])
			}
		}
		for i, p := range map[int]string{0: "1", 1: "0", 2: "3", 3: "4"} {
			if j := r.job(results[i].ID); string(j.Payload) != p {
				t.Errorf("%s: payload %s, want %s", names[i], j.Payload, p)
			}
		}
		if results, err := c.EnqueueMany(t.Context(), nil); len(results) != 0 || err != nil {
			t.Errorf("nothing: %v, %v", results, err)
		}
	})
}

func TestManyKeepTheirOrderAndCostFewRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		r.accepts(c, "mail", -1)
		r.accepts(c, "images", -1)
		before := r.fault.Seen()
		reqs := make([]worker.Request, 5500)
		for i := range reqs {
			reqs[i] = worker.Request{Instance: "images", Payload: i}
			if i%10 == 0 {
				reqs[i].Instance = "mail"
			}
		}
		results, err := c.EnqueueMany(t.Context(), reqs)
		if err != nil {
			t.Fatal(err)
		}
		if sent := r.fault.Seen() - before; sent > 44 {
			t.Errorf("%d requests for 22 parts of two instances, want one each", sent)
		}
		for _, instance := range []string{"images", "mail"} {
			var want, got []uuid.UUID
			for i := range reqs {
				if reqs[i].Instance == instance {
					want = append(want, results[i].ID)
				}
			}
			for cursor, first := "", true; first || cursor != ""; first = false {
				page, err := r.st.List(t.Context(), store.Filter{Instance: instance, State: store.Todo, Limit: 1000, Cursor: cursor})
				if err != nil {
					t.Fatal(err)
				}
				for _, j := range page.Jobs {
					got = append(got, j.ID)
				}
				cursor = page.Next
			}
			if !sortedAlike(got[1:], want) {
				t.Errorf("%s: %d jobs in another order, or others, than the %d requests", instance, len(got)-1, len(want))
			}
		}
	})
}

// largest notes how many arguments a request had at most, of those that have an argument with this text in it.
type largest struct {
	about string
	args  atomic.Int64
}

func (l *largest) intercept(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	about := func(arg any) bool { return strings.Contains(fmt.Sprint(arg), l.about) }
	if l.about != "" && !slices.ContainsFunc(cmd.Args(), about) {
		return next(ctx, cmd)
	}
	for n := int64(len(cmd.Args())); ; {
		if old := l.args.Load(); n <= old || l.args.CompareAndSwap(old, n) {
			return next(ctx, cmd)
		}
	}
}

// Redis serves nobody else while it carries out a request.
func TestNoRequestIsForMoreThan250JobsOrWorkers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		var size largest
		r.intercept(size.intercept)
		most := func(what string, each int64) {
			if got := size.args.Swap(0); got < 2*200 || got > each*250+60 {
				t.Errorf("%s: the largest request has %d arguments; a job or a worker has %d at most", what, got, each)
			}
		}
		const n = 3000
		if _, err := r.client().EnqueueMany(t.Context(), slices.Repeat([]worker.Request{{Instance: "images", Payload: none{}}}, n)); err != nil {
			t.Fatal(err)
		}
		most("enqueuing many", 2)
		c := r.client()
		var all sync.WaitGroup
		for range n {
			all.Go(func() { r.accepts(c, "images", none{}) })
		}
		all.Wait()
		most("many enqueuing", 2)
		worker.Handle(r.sup, "images", func(context.Context, none) error { time.Sleep(time.Second); return nil }, worker.Concurrency(2000))
		r.start()
		settle(time.Minute)
		most("working", 5) // 3 of them if it wants no other job
		if s := r.stats("images"); s.Done != 2*n {
			t.Errorf("stats are %+v, want %d done", s, 2*n)
		}
		r.stopWell()
	})
}

// waits is a hook that notes of how many steps the jobs wait, at most, that one request parks.
type waits struct{ most atomic.Int64 }

func (w *waits) intercept(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	n := int64(0)
	for _, arg := range cmd.Args() {
		if s, ok := arg.(string); ok && strings.HasPrefix(s, "a\npart/") {
			n += int64(strings.Count(s, "\n"))
		}
	}
	if n > w.most.Load() {
		w.most.Store(n) // the handlers park at the same moment: that is a lane or two
	}
	return next(ctx, cmd)
}

func TestNoRequestIsForMoreThanAThousandStepsOfManyJobs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 300
		r := newRig(t, worker.Config{})
		size, parks := largest{about: ":step_result:"}, &waits{}
		r.intercept(size.intercept)
		r.intercept(parks.intercept)
		together := time.Now().Add(time.Minute)
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			fs, err := worker.AsyncEach[none](ctx, "part", "child", make([]none, n))
			if err != nil {
				return err
			}
			time.Sleep(time.Until(together))
			_, err = worker.WaitAll(ctx, fs)
			return err
		}, worker.Concurrency(12))
		r.latency(5 * time.Millisecond)
		r.enqueueMany("x", 12)
		r.start()
		settle(2 * time.Minute)
		if s := r.stats("x"); s.Parked != 12 {
			t.Fatalf("stats are %+v, want 12 parked", s)
		}
		if got := size.args.Load(); got < 2*n || got > 2*1000+100 {
			t.Errorf("the largest request with steps has %d arguments, of which a step has 2", got)
		}
		if got := parks.most.Load(); got < n || got > 1000+2 {
			t.Errorf("one request parks jobs that wait for %d steps", got)
		}
		r.stopWell()
	})
}

func TestNoRequestIsForMoreThan250Children(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		size := largest{about: "stint:{child}:lane:"}
		r.intercept(size.intercept)
		const n = 1000
		worker.Handle(r.sup, "x", func(ctx context.Context, _ none) error {
			fs, err := worker.AsyncEach[none](ctx, "part", "child", make([]none, n))
			if err == nil {
				_, err = worker.WaitAll(ctx, fs)
			}
			return err
		})
		r.enqueue("x", none{})
		r.start()
		settle(time.Minute)
		if s := r.stats("child"); s.Todo != n {
			t.Fatalf("stats are %+v, want %d todo", s, n)
		}
		if got := size.args.Load(); got < 5*200 || got > 5*250+60 {
			t.Errorf("the largest request has %d arguments; a child has 5", got)
		}
		r.stopWell()
	})
}

// sortedAlike compares two orders; parts that travelled at the same time may have changed places.
func sortedAlike(got, want []uuid.UUID) bool {
	if len(got) != len(want) {
		return false
	}
	place := map[uuid.UUID]int{}
	for i, id := range want {
		place[id] = i
	}
	for i, id := range got {
		p, ok := place[id]
		if !ok || max(p-i, i-p) > 750 {
			return false
		}
	}
	return true
}

func TestManyLargeOnesTravelAMiBAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		c := r.client()
		r.accepts(c, "images", 0)
		before := r.fault.Seen()
		reqs := slices.Repeat([]worker.Request{{Instance: "images", Payload: strings.Repeat("x", 400_000)}}, 12)
		if _, err := c.EnqueueMany(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
		if sent := r.fault.Seen() - before; sent < 6 || sent > 12 {
			t.Errorf("%d requests for 12 payloads of 400 KB, want 2 in each or nearly so", sent)
		}
	})
}

func TestASingleJobDoesNotWaitForABulk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, worker.Config{})
		const n = 20_000
		var accepted, ahead atomic.Int64
		var single sync.WaitGroup
		bulk := worker.NewClient(r.st, worker.ClientConfig{})
		bulk = worker.NewClient(r.st, worker.ClientConfig{OnEvent: func(e worker.Event) {
			if accepted.Add(1) == 1 {
				single.Go(func() {
					if _, err := bulk.Enqueue(t.Context(), "images", "single"); err != nil {
						t.Error(err)
					}
					ahead.Store(accepted.Load())
				})
			}
		}})
		if _, err := bulk.EnqueueMany(t.Context(), slices.Repeat([]worker.Request{{Instance: "images"}}, n)); err != nil {
			t.Fatal(err)
		}
		single.Wait()
		if got := ahead.Load(); got > n/2 {
			t.Errorf("%d of %d jobs of the bulk went first", got, n)
		}
	})
}
