package redistest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
)

func TestALostReplyOfAScriptIsNeverItsNoScript(t *testing.T) {
	for name, arm := range map[string]func(*redistest.Fault, int, ...redistest.Match) <-chan struct{}{
		"LoseReplyNth": (*redistest.Fault).LoseReplyNth, "CutReplyNth": (*redistest.Fault).CutReplyNth,
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, r *rig) {
				key := redistest.Prefix(t)
				script := redis.NewScript("-- " + key + "\nreturn redis.call('INCR', KEYS[1])") // known nowhere
				struck := arm(r.fault, 1, redistest.Named("eval"), redistest.Mentions(key))
				err := script.Run(t.Context(), r.c, []string{key}).Err()
				want := 1
				if name == "CutReplyNth" {
					want = 2 // repeated by go-redis
				} else if !errors.Is(err, redistest.ErrFault) {
					t.Errorf("the call: %v", err)
				}
				if n := r.count(t, key); n != want || !happened(struck) {
					t.Errorf("carried out %d times, want %d; happened: %v", n, want, happened(struck))
				}
			})
		})
	}
}

func TestAReplyThatTheServerNeverSentIsNotLost(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		struck := r.fault.LoseReplyNth(1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		key := redistest.Prefix(t)
		if err := r.c.Incr(ctx, key).Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("with a cancelled context: %v", err)
		}
		if happened(struck) {
			t.Error("it counts")
		}
		if err := r.c.Incr(t.Context(), key).Err(); !errors.Is(err, redistest.ErrFault) || !happened(struck) {
			t.Errorf("the next one: %v", err)
		}
	})
}

func TestARefusalIsAReplyThatCanBeLost(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		key := redistest.Prefix(t)
		r.calm.Set(t.Context(), key, "text", 0)
		for _, f := range []func() error{
			func() error { return r.c.Incr(t.Context(), key).Err() },
			func() error { return r.c.Get(t.Context(), key+"-missing").Err() },
		} {
			r.fault.LoseReplyNth(1)
			if err := f(); !errors.Is(err, redistest.ErrFault) {
				t.Errorf("%v", err)
			}
		}
	})
}

func TestBigRequestsAndRepliesArePassedOnWhole(t *testing.T) {
	everywhere(t, func(t *testing.T, r *rig) {
		key, big := redistest.Prefix(t), strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
		struckSet, struckGet := r.fault.CutReplyNth(1, redistest.Named("set")), r.fault.CutReplyNth(1, redistest.Named("get"))
		if err := r.c.Set(t.Context(), key, big, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := r.c.Get(t.Context(), key).Result(); got != big || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if !happened(struckSet) || !happened(struckGet) {
			t.Error("a cut did not happen")
		}
		r.c.Del(t.Context(), key)
	})
}

func TestRepliesAreToldApartWhateverTheirTypes(t *testing.T) {
	for name, reply := range map[string]string{
		"status":          "+OK\r\n",
		"error":           "-ERR no\r\n",
		"number":          ":-12\r\n",
		"text":            "$8\r\na\r\nb\r\nc+\r\n",
		"empty text":      "$0\r\n\r\n",
		"no text":         "$-1\r\n",
		"list":            "*3\r\n:1\r\n*2\r\n$1\r\na\r\n$-1\r\n+b\r\n",
		"empty list":      "*0\r\n",
		"no list":         "*-1\r\n",
		"null":            "_\r\n",
		"boolean":         "#t\r\n",
		"double":          ",1.5\r\n",
		"big number":      "(123456789012345678901234567890\r\n",
		"verbatim text":   "=7\r\ntxt:a\r\n\r\n",
		"long error":      "!5\r\nERR a\r\n",
		"map":             "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n",
		"set":             "~2\r\n:1\r\n:2\r\n",
		"with attributes": "|1\r\n+ttl\r\n:3\r\n*1\r\n:4\r\n",
	} {
		before, after := "+first\r\n>2\r\n+pushed\r\n:1\r\n", ":99\r\n"
		whole := before + reply + after
		start, end, ok := redistest.FindReply([]byte(whole), 2)
		if !ok || whole[start:end] != reply {
			t.Errorf("%s: found %q, %v", name, whole[start:end], ok)
		}
		for n := range len(before + reply) {
			if _, _, ok := redistest.FindReply([]byte(whole[:n]), 2); ok {
				t.Errorf("%s: found in its first %d bytes", name, n)
			}
		}
	}
}
