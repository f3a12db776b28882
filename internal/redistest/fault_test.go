package redistest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/stint-go/stint/internal/redistest"
)

// rig is a client with a fault on it, and another without.
type rig struct {
	fault   *redistest.Fault
	c, calm *redis.Client
}

// everywhere runs a test on the embedded server in a bubble and on a real one, and fails it if it hangs.
func everywhere(t *testing.T, f func(t *testing.T, r *rig)) {
	quick := func(o *redis.Options) { o.MinRetryBackoff, o.MaxRetryBackoff = time.Millisecond, time.Millisecond }
	t.Run("embedded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := miniredis.NewMiniRedis()
			defer server.Close()
			client := func() *redis.Client {
				o := &redis.Options{
					Addr:                     "127.0.0.1:1",
					Dialer:                   func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
					MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
				}
				quick(o)
				return redis.NewClient(o)
			}
			r := &rig{new(redistest.Fault), client(), client()}
			defer r.c.Close()
			defer r.calm.Close()
			r.c.AddHook(r.fault)
			f(t, r)
		})
	})
	t.Run("real", func(t *testing.T) {
		s := redistest.Shared(t)
		r := &rig{new(redistest.Fault), s.Client(t, quick), s.Client(t)}
		r.c.AddHook(r.fault)
		f(t, r)
	})
}

func happened(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// count is the value of a counter, read past the fault.
func (r *rig) count(t *testing.T, key string) int {
	t.Helper()
	n, err := r.calm.Get(t.Context(), key).Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return n
}

func TestTheNthCommandIsStruckAndNoOther(t *testing.T) {
	for _, c := range []struct {
		name  string
		arm   func(*redistest.Fault, int, ...redistest.Match) <-chan struct{}
		fails bool // the caller gets an error
		twice int  // how often the command is carried out, compared to once
	}{
		{"FailNth", (*redistest.Fault).FailNth, true, -1},
		{"LoseReplyNth", (*redistest.Fault).LoseReplyNth, true, 0},
		{"CutNth", (*redistest.Fault).CutNth, false, 0},
		{"CutReplyNth", (*redistest.Fault).CutReplyNth, false, +1},
	} {
		t.Run(c.name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, r *rig) {
				for nth := 1; nth <= 3; nth++ {
					key := redistest.Prefix(t)
					struck := c.arm(r.fault, nth)
					for i := 1; i <= 4; i++ {
						err := r.c.Incr(t.Context(), key).Err()
						if failed := err != nil; failed != (c.fails && i == nth) {
							t.Errorf("nth %d: command %d: %v", nth, i, err)
						}
						if err != nil && (!errors.Is(err, redistest.ErrFault) || !errors.Is(err, io.EOF)) {
							t.Errorf("nth %d: command %d fails with another error: %v", nth, i, err)
						}
						if happened(struck) != (i >= nth) {
							t.Errorf("nth %d: after command %d: happened %v", nth, i, happened(struck))
						}
					}
					if n := r.count(t, key); n != 4+c.twice {
						t.Errorf("nth %d: 4 commands were carried out %d times, want %d", nth, n, 4+c.twice)
					}
				}
			})
		})
	}
}

func TestWithoutItsOwnRetriesGoRedisReportsACutConnection(t *testing.T) {
	s := redistest.Shared(t)
	for name, arm := range map[string]func(*redistest.Fault, int, ...redistest.Match) <-chan struct{}{
		"CutNth": (*redistest.Fault).CutNth, "CutReplyNth": (*redistest.Fault).CutReplyNth,
	} {
		fault := new(redistest.Fault)
		c := s.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
		c.AddHook(fault)
		arm(fault, 1)
		if err := c.Incr(t.Context(), redistest.Prefix(t)).Err(); !errors.Is(err, redistest.ErrFault) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestADialerAloneCutsToo(t *testing.T) {
	s, fault := redistest.Shared(t), new(redistest.Fault)
	c := s.Client(t, func(o *redis.Options) { o.Dialer = fault.DialHook((&net.Dialer{}).DialContext) })
	key := redistest.Prefix(t)
	struck := fault.CutReplyNth(1)
	if n, err := c.Incr(t.Context(), key).Result(); n != 2 || err != nil || !happened(struck) {
		t.Errorf("%d, %v; want it carried out twice", n, err)
	}
}

func TestCommandsArePickedByNameAndContent(t *testing.T) {
	for _, c := range []struct {
		name   string
		only   []redistest.Match
		second int // the command that is the second to match; 0 for none
	}{
		{"any", nil, 2},
		{"by name", []redistest.Match{redistest.Named("INCR")}, 5},
		{"by one of several names", []redistest.Match{redistest.Named("incr", "get", "set")}, 3},
		{"by what it mentions", []redistest.Match{redistest.Mentions("odd")}, 3},
		{"by a number that it mentions", []redistest.Match{redistest.Mentions("7")}, 0},
		{"by both", []redistest.Match{redistest.Named("set"), redistest.Mentions("odd")}, 3},
		{"by what never comes", []redistest.Match{redistest.Named("set"), redistest.Mentions("even")}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, r *rig) {
				struck := r.fault.FailNth(2, c.only...)
				failed := 0
				for i, cmd := range [][]any{
					{"set", "a", "odd"}, {"incrby", "b", 7}, {"set", "a", []byte("very odd")}, {"Incr", "b"}, {"incr", "b"},
				} {
					cmd[1] = "{picked}" + cmd[1].(string)
					if r.c.Do(t.Context(), cmd...).Err() != nil {
						failed = i + 1
					}
				}
				if failed != c.second || happened(struck) != (c.second != 0) {
					t.Errorf("command %d failed, want %d", failed, c.second)
				}
			})
		})
	}
}

func TestSeveralFaultsCountForThemselves(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		key := redistest.Prefix(t)
		second, alsoSecond, fourth := r.fault.FailNth(2), r.fault.FailNth(2), r.fault.LoseReplyNth(4, redistest.Named("incr"))
		var failed []int
		for i := 1; i <= 6; i++ {
			if r.c.Incr(t.Context(), key).Err() != nil {
				failed = append(failed, i)
			}
		}
		if len(failed) != 3 || failed[0] != 2 || failed[1] != 3 || failed[2] != 4 {
			t.Errorf("failed: %v; want 2, 3 (the other one that was due) and 4", failed)
		}
		if !happened(second) || !happened(alsoSecond) || !happened(fourth) {
			t.Error("not all happened")
		}
		if n := r.count(t, key); n != 4 {
			t.Errorf("carried out %d times, want 4", n)
		}
		if r.fault.Seen() != 6 {
			t.Errorf("seen %d, want 6", r.fault.Seen())
		}
	})
}

func TestAPipelineIsStruckAtItsNthCommand(t *testing.T) {
	const err, ok = true, false
	for _, c := range []struct {
		name    string
		arm     func(*redistest.Fault, int, ...redistest.Match) <-chan struct{}
		tx      bool
		failed  [4]bool
		applied [4]int
	}{
		{"FailNth", (*redistest.Fault).FailNth, false, [4]bool{ok, ok, err, err}, [4]int{1, 1, 0, 0}},
		{"LoseReplyNth", (*redistest.Fault).LoseReplyNth, false, [4]bool{ok, ok, err, err}, [4]int{1, 1, 1, 1}},
		{"CutNth", (*redistest.Fault).CutNth, false, [4]bool{}, [4]int{1, 1, 1, 1}},
		{"CutReplyNth", (*redistest.Fault).CutReplyNth, false, [4]bool{}, [4]int{2, 2, 2, 2}},
		{"FailNth of a transaction", (*redistest.Fault).FailNth, true, [4]bool{err, err, err, err}, [4]int{0, 0, 0, 0}},
		{"LoseReplyNth of a transaction", (*redistest.Fault).LoseReplyNth, true, [4]bool{err, err, err, err}, [4]int{1, 1, 1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, r *rig) {
				prefix := redistest.Prefix(t)
				struck := c.arm(r.fault, 3)
				pipe := r.c.Pipeline()
				if c.tx {
					pipe = r.c.TxPipeline()
				}
				var cmds []*redis.IntCmd
				for _, k := range []string{"a", "b", "c", "d"} {
					cmds = append(cmds, pipe.Incr(t.Context(), prefix+k))
				}
				_, execErr := pipe.Exec(t.Context())
				if anyFailed := c.failed != [4]bool{}; anyFailed != errors.Is(execErr, redistest.ErrFault) {
					t.Errorf("the pipeline: %v", execErr)
				}
				for i, cmd := range cmds {
					if (cmd.Err() != nil) != c.failed[i] {
						t.Errorf("command %d: %v", i+1, cmd.Err())
					}
					if n := r.count(t, prefix+string(rune('a'+i))); n != c.applied[i] {
						t.Errorf("command %d was carried out %d times, want %d", i+1, n, c.applied[i])
					}
				}
				if !happened(struck) {
					t.Error("nothing happened")
				}
				if err := r.c.Incr(t.Context(), prefix+"e").Err(); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			})
		})
	}
}
