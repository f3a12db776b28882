// Thumbnails makes a small copy of each picture in some directories: a whole program built on Stint.
//
//	go run ./example/thumbnails [-redis addr] [-out dir] [dir...]
//
// Without a directory it takes the pictures that the Go installation has for its own tests, some of which are broken on
// purpose. Each file is a job. One that is no picture is dead at once, one that can't be read is tried again a few times. The
// exit status is 0 when there is a thumbnail of every picture that can be decoded.
//
// Without -redis the jobs are in this process and end with it. With it they are in Redis: after Ctrl-C, or a crash, the
// same command goes on from there, and several processes share the work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// instance names the kind of job, and its queue.
const instance = "thumbnails"

type options struct {
	redis string // an address, or empty for a server inside this process
	out   string
	in    []string // directories and files
}

func main() {
	var o options
	flag.StringVar(&o.redis, "redis", "", "the `address` of a Redis, such as localhost:6379, that keeps the jobs")
	flag.StringVar(&o.out, "out", "thumbnails", "the `directory` for the thumbnails")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: thumbnails [-redis address] [-out directory] [directory...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	o.in = flag.Args()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	complete, err := run(ctx, o, newView(os.Stdout))
	if err != nil {
		fmt.Fprintln(os.Stderr, "thumbnails:", err)
	}
	if !complete {
		os.Exit(1)
	}
}

// run makes the thumbnails, until all are made or ctx ends. It reports whether none is missing that could be made.
func run(ctx context.Context, o options, v *view) (complete bool, err error) {
	pictures, err := find(o)
	if err != nil {
		return false, err
	}
	start := time.Now()
	st, err := open(o.redis)
	if err != nil {
		return false, err
	}
	defer st.Close()

	client := worker.NewClient(st.Store, worker.ClientConfig{})
	if err := enqueue(ctx, client, st.Store, pictures); err != nil {
		return false, err
	}
	sup, err := worker.New(st.Store, worker.Config{
		Logger:  slog.New(slog.NewTextHandler(v.above(os.Stderr), nil)),
		OnEvent: retries(pictures, v),
	})
	if err != nil {
		return false, err
	}
	worker.Handle(sup, instance, makeThumbnail,
		worker.Concurrency(runtime.GOMAXPROCS(0)), // the work is computing: more at once would not be faster
		worker.Retry(retry.Limit(5, retry.Exponential(250*time.Millisecond, 2*time.Second))),
		worker.Retention(7*24*time.Hour, 100_000)) // for so long a later run knows what is made already

	// A supervisor runs until its context ends. Here that is when all jobs have ended, or when the user has had enough;
	// either way it lets the handlers finish that are at work.
	running, finish := context.WithCancel(ctx)
	defer finish()
	var waiting sync.WaitGroup
	waiting.Go(func() {
		defer finish()
		await(running, client, pictures, v)
		if ctx.Err() != nil {
			v.note("Stopping: what is at work is finished first. Once more ends it at once.")
		}
	})
	v.begin(pictures)
	err = sup.Run(running)
	finish()
	waiting.Wait()
	if ctx.Err() != nil {
		err = errors.Join(err, settle(st.Store, pictures))
	}
	return v.end(o, pictures, time.Since(start)), err
}

// jobs is where the jobs are kept.
type jobs struct {
	*store.Store
	rdb *redis.Client // nil for a server inside this process
}

func open(addr string) (jobs, error) {
	if addr == "" {
		st, err := store.OpenEmbedded(store.Options{})
		return jobs{Store: st}, err
	}
	redis.SetLogger(quiet{})
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	st, err := store.Open(rdb, store.Options{})
	return jobs{st, rdb}, err
}

// Close closes the Redis client too: a store leaves that to whoever has made it.
func (j jobs) Close() error {
	err := j.Store.Close()
	if j.rdb != nil {
		err = errors.Join(err, j.rdb.Close())
	}
	return err
}

// quiet keeps the Redis client from writing over the bar: that Redis is away is said once, by whoever needs it.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// enqueue sees to it that each picture has a job. A job's id is derived from what there is to do, so that a job which an
// earlier run has left is not enqueued twice. When ctx ends first it is no error: some pictures are left then.
func enqueue(ctx context.Context, client *worker.Client, st *store.Store, pictures []*picture) error {
	requests := make([]worker.Request, len(pictures))
	for i, p := range pictures {
		requests[i] = worker.Request{Instance: instance, Payload: p.task, Options: []worker.EnqueueOption{worker.ID(p.id)}}
	}
	results, _ := client.EnqueueMany(ctx, requests) // the results say more than the error
	for i, r := range results {
		err := r.Err
		if errors.Is(err, store.ErrExists) {
			err = takeUp(ctx, st, pictures[i])
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// takeUp takes the job of an earlier run. It has nothing more to do if the thumbnail is there; but if the job has ended
// without one, or somebody has removed it, the job runs again.
func takeUp(ctx context.Context, st *store.Store, p *picture) (err error) {
	if p.job, err = st.Get(ctx, p.id); err != nil || !p.job.State.Terminal() {
		return err
	}
	if _, err := os.Stat(p.task.Thumbnail); err == nil && p.job.State == store.Done {
		p.earlier = true
		return nil
	}
	err = st.Requeue(ctx, p.id, store.RequeueMode{})
	if errors.Is(err, store.ErrState) { // another process was faster
		return nil
	}
	return err
}

// await waits for the jobs, wherever they run, and shows each that has ended. It waits for several at once: they don't end
// in their order, and one that is tried again takes its time.
func await(ctx context.Context, client *worker.Client, pictures []*picture, v *view) {
	next := make(chan *picture)
	var waiters sync.WaitGroup
	for range 100 {
		waiters.Go(func() {
			for p := range next {
				var err error
				if p.job, err = client.Wait(ctx, p.id); err == nil {
					v.ended(p)
				} else if ctx.Err() == nil {
					v.line("lost", p, err.Error())
				}
			}
		})
	}
	for _, p := range pictures {
		if !p.earlier {
			next <- p // when ctx has ended, Wait returns at once
		}
	}
	close(next)
	waiters.Wait()
}

// settle looks once more at what nobody has waited for to the end: the handlers that were at work have finished meanwhile.
func settle(st *store.Store, pictures []*picture) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, p := range pictures {
		if p.earlier || p.job.State.Terminal() {
			continue
		}
		job, err := st.Get(ctx, p.id)
		if err != nil && !errors.Is(err, store.ErrNotFound) { // it was not enqueued any more
			return err
		}
		p.job = job
	}
	return nil
}

// retries returns a listener that shows what this process will try again.
func retries(pictures []*picture, v *view) func(worker.Event) {
	byID := make(map[string]*picture, len(pictures))
	for _, p := range pictures {
		byID[p.id.String()] = p
	}
	return func(e worker.Event) {
		if f, ok := e.(worker.JobFinished); ok && f.Outcome == worker.Retried {
			if p := byID[f.Job.String()]; p != nil { // else it is another run's
				v.line("again", p, f.Err.Error())
			}
		}
	}
}
