package storetest

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// shift moves all times that a server has noted under a prefix into the past, by d: so time passes on a server whose clock is nobody's to
// set. Not moved are the times that decide nothing: since when a job is there, or runs.
func shift(ctx context.Context, rdb redis.UniversalClient, prefix string, d time.Duration) error {
	keys, err := keysOf(ctx, rdb, prefix+":*")
	if err != nil {
		return err
	}
	s := shifter{ctx: ctx, rdb: rdb, by: d.Milliseconds()}
	slices.Sort(keys) // chores after children: the entries of the latter are in the former
	for _, key := range keys {
		if err := s.key(key, key[strings.LastIndexByte(key, ':')+1:]); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

type shifter struct {
	ctx context.Context
	rdb redis.UniversalClient
	by  int64 // ms
}

func (s shifter) key(key, name string) error {
	switch name {
	case "doing", "done", "dead", "cancelled", "parked", "awaited", "waiting", "cancels", "processes", "windows", "deadlines":
		return s.scores(key, s.by, nil)
	case "scheduled":
		return s.scores(key, s.by*16, nil)
	case "chores":
		return s.scores(key, s.by, func(entry string) string {
			if entry != "" && entry[0] == 'o' {
				return "o" + s.child(entry[1:])
			}
			return entry
		})
	case "children":
		if err := s.records(key); err != nil {
			return err
		}
		return s.scores(key, 0, s.child)
	case "cron_ticks":
		return s.fields(key, s.tick)
	case "locks":
		return s.fields(key, func(_, lock string) string {
			if lock[0] != 'w' {
				return lock
			}
			return lock[:17] + s.number(lock[17:])
		})
	case "meta":
		return s.fields(key, func(field, v string) string {
			if slices.Contains([]string{"reaped", "grace", "rate", "leased"}, field) {
				return s.number(v)
			}
			return v
		})
	}
	return nil
}

// scores takes by from each score of a set; a negative one, which is a deadline turned off, counts from zero. If its members say a time as
// well they are renamed.
func (s shifter) scores(key string, by int64, rename func(string) string) error {
	all, err := s.rdb.ZRangeWithScores(s.ctx, key, 0, -1).Result()
	if err != nil {
		return err
	}
	var gone []any
	for i := range all {
		if all[i].Score < 0 {
			all[i].Score += float64(by)
		} else {
			all[i].Score -= float64(by)
		}
		if rename != nil {
			if was := all[i].Member.(string); rename(was) != was {
				all[i].Member = rename(was)
				gone = append(gone, was)
			}
		}
	}
	for some := range slices.Chunk(gone, 5000) {
		if err := s.rdb.ZRem(s.ctx, key, some...).Err(); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(all, 5000) {
		if err := s.rdb.ZAdd(s.ctx, key, some...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// fields gives the fields of a hash other values.
func (s shifter) fields(key string, to func(field, value string) string) error {
	all, err := s.rdb.HGetAll(s.ctx, key).Result()
	if err != nil {
		return err
	}
	var set []any
	for field, v := range all {
		if is := to(field, v); is != v {
			set = append(set, field, is)
		}
	}
	for some := range slices.Chunk(set, 5000) {
		if err := s.rdb.HSet(s.ctx, key, some...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// number is a time that is told in digits; 0 is none.
func (s shifter) number(text string) string {
	at, err := strconv.ParseFloat(text, 64)
	if err != nil || at <= 0 {
		return text
	}
	return strconv.FormatFloat(at-float64(s.by), 'f', -1, 64)
}

// tick moves the latest tick that is decided, and the last that was dispatched, of an entry.
func (s shifter) tick(entry, state string) string {
	f := strings.SplitN(state, " ", 6)
	if entry == "" || len(f) != 6 {
		return state
	}
	f[1], f[2] = s.number(f[1]), s.number(f[2])
	return strings.Join(f, " ")
}

// Where an entry of children says since when it is there.
const sinceFrom, sinceTo = 16 + 6 + 16, 16 + 6 + 16 + 13

// child moves the time since which a child is there.
func (s shifter) child(member string) string {
	if len(member) <= sinceTo {
		return member // rubbish, which a case has put there
	}
	at, err := strconv.ParseInt(member[sinceFrom:sinceTo], 10, 64)
	if err != nil {
		return member
	}
	return member[:sinceFrom] + fmt.Sprintf("%013d", at-s.by) + member[sinceTo:]
}

// records moves the same time in the records of open steps: it names their entries there.
func (s shifter) records(children string) error {
	all, err := s.rdb.ZRange(s.ctx, children, 0, -1).Result()
	if err != nil {
		return err
	}
	base := strings.TrimSuffix(children, "children") + "step_result:"
	for _, member := range all {
		_, name, ok := strings.Cut(member[min(len(member), sinceTo):], "\n")
		if !ok {
			continue
		}
		key := base + hex.EncodeToString([]byte(member[:16]))
		record, err := s.rdb.HGet(s.ctx, key, name).Result()
		line, rest, _ := strings.Cut(record, "\n")
		f := strings.Split(line, " ")
		if err != nil || record[0] != 'd' || len(f) != 5 || f[3] != member[sinceFrom:sinceTo] {
			continue // it is of another generation, or a case has spoilt it
		}
		f[3] = s.child(member)[sinceFrom:sinceTo]
		if err := s.rdb.HSet(s.ctx, key, name, strings.Join(f, " ")+"\n"+rest).Err(); err != nil {
			return err
		}
	}
	return nil
}
