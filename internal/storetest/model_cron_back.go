package storetest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/store"
)

// back lets the server's clock go back: by less than what may be ahead of it, or by more. Then one process reads.
func (c *cronMachine) back(t *rapid.T) {
	if rapid.Bool().Draw(t, "not really") {
		t.Skip("more rarely than the others")
	}
	by := rapid.SampledFrom([]time.Duration{48 * time.Hour, 48 * time.Hour, 10 * c.every}).Draw(t, "by")
	c.step(t, "back "+by.String(), func() string {
		if err := shift(c.ctx, c.rig.Client, c.rig.Prefix, -by); err != nil {
			t.Fatal(err)
		}
		return ""
	}, func(m cronModel, _ int64) string {
		for key, e := range m {
			if e.high += by.Milliseconds(); e.last > 0 {
				e.last += by.Milliseconds()
			}
			m[key] = e
		}
		return ""
	})
	c.read(t)
}

// decidedUntil is the tick after which a process decides: where the latest that is decided is far ahead, one of the last few.
func (c *cronMachine) decidedUntil(t *rapid.T, high int64) time.Time {
	if now := c.now(t); high > now+ahead {
		return time.UnixMilli(now).Truncate(c.every).Add(-c.every * time.Duration(rapid.IntRange(1, 8).Draw(t, "ago")))
	}
	return time.UnixMilli(high).Truncate(c.every)
}

// nobodys is the latest tick that is decided where those until now are nobody's.
func nobodys(high, now int64) int64 {
	if high > now+ahead {
		return now
	}
	return max(high, now)
}

// stood says whether a tick is decided by the records that were there before: its own, or that of many.
func (c *cronMachine) stood(key string, e cronEntry, tick int64) bool {
	if was := c.status[key][tick]; was != "" {
		return was != store.StatusFailed
	}
	return e.skips(tick)
}

func (e cronEntry) skips(tick int64) bool {
	for _, s := range e.skipped {
		if s.first <= tick && tick <= s.last {
			return true
		}
	}
	return false
}
