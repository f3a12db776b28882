package worker

import (
	"context"
	"errors"

	"github.com/stint-go/stint/internal/loop"
	"github.com/stint-go/stint/store"
)

// persist makes a request until it is answered, at least once: what it has to say has happened already. So a server that refuses
// for a while, as in a failover, is waited for like one that is away. It gives up when trying again can't help, or the attempt's
// context ends. Nothing is sent any more when Run has returned without the attempt.
func (a *attempt) persist(request func(ctx context.Context) error) error {
	for failures := 1; ; failures++ {
		err := request(a.feed.run.io)
		if err == nil || hopeless(err) || errors.Is(err, ErrLeaseLost) || errors.Is(err, store.ErrNotFound) {
			return err
		}
		if failures == 1 && a.context().Err() == nil {
			a.feed.waits(err)
			defer a.feed.waitsNoMore()
		}
		if !rest(a.context(), loop.Pause(failures, sendPause)) {
			return errors.Join(context.Cause(a.context()), err)
		}
	}
}

// waits tells that an attempt can't have a step kept, or loaded, for the time being: it is one trouble, however many they are.
func (f *feed) waits(err error) {
	f.waiting.Lock()
	defer f.waiting.Unlock()
	f.waiting.n++
	f.run.outages.Failed(f.steps(), err)
}

// waitsNoMore tells that it is kept, or that nobody is there any more who waits for it.
func (f *feed) waitsNoMore() {
	f.waiting.Lock()
	defer f.waiting.Unlock()
	if f.waiting.n--; f.waiting.n == 0 {
		f.run.outages.OK(f.steps())
	}
}

func (f *feed) steps() loop.Name { return loop.Name{Loop: "steps", Instance: f.terms.Instance} }
