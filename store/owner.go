package store

import (
	"context"
	"slices"
)

// Which instance the key of an entry belongs to, its name for short, stands in one hash for all instances, and so apart from the entry: no
// script changes both. A name is noted before its entry is registered, and whoever has registered or removed an entry looks at both until
// they agree. So whatever comes between, the last to write has seen that they do; what a crash leaves, RemoveEntry puts right, or the
// processes that declare the entry.

// own notes which instance the keys belong to, and returns for each the one that it does.
func (s *Store) own(ctx context.Context, instance string, all []Definition, note bool) ([]string, error) {
	if len(all) == 0 {
		return nil, nil
	}
	args := []any{flag(note)}
	for i := range all {
		args = append(args, all[i].Key, instance)
	}
	p, err := s.run(ctx, scriptOwn, []string{s.keys.entries()}, args...)
	if err != nil {
		return nil, err
	}
	l := p.list()
	holders := make([]string, len(all))
	for i := range holders {
		holders[i] = l.str()
	}
	return holders, nil
}

// agreeTries is how often agree goes on: each time but the first, another process has changed the same entries meanwhile.
const agreeTries = 20

// agree notes the names of those entries that are registered for an instance, and forgets those of entries that are not. It returns
// which of those that are registered belong to another instance, and to which: the caller has to decide.
func (s *Store) agree(ctx context.Context, instance string, entries []string) (map[string]string, error) {
	elsewhere := map[string]string{}
	for some := range slices.Chunk(entries, MaxCall) {
		for range agreeTries {
			named, err := s.names(ctx, some)
			if err != nil {
				return nil, err
			}
			key := s.keys.cron(instance)[2]
			states, err := s.rdb.HMGet(ctx, key, some...).Result()
			if err != nil {
				return nil, s.named(ctx, err, key, "hash")
			}
			var unnamed []Definition
			gone := []any{instance}
			for i, e := range some {
				there := states[i] != nil
				delete(elsewhere, e)
				switch {
				case there && named[i] == "":
					unnamed = append(unnamed, Definition{Key: e})
				case there && named[i] != instance:
					elsewhere[e] = named[i]
				case !there && named[i] == instance:
					gone = append(gone, e)
				}
			}
			if len(unnamed) == 0 && len(gone) == 1 {
				break
			}
			if _, err := s.own(ctx, instance, unnamed, true); err != nil {
				return nil, err
			}
			if _, err := s.run(ctx, scriptDisown, []string{s.keys.entries()}, gone...); err != nil {
				return nil, err
			}
		}
	}
	return elsewhere, nil
}

// names returns the instance that each entry belongs to, "" where it is not noted.
func (s *Store) names(ctx context.Context, entries []string) ([]string, error) {
	all, err := s.rdb.HMGet(ctx, s.keys.entries(), entries...).Result()
	if err != nil {
		return nil, s.named(ctx, err, s.keys.entries(), "hash")
	}
	names := make([]string, len(entries))
	for i := range names {
		names[i], _ = all[i].(string)
	}
	return names, nil
}

// Owners returns for each entry, of at most MaxCall, the instance that its key is noted to belong to, "" if it is not. That stands in a key
// of its own, which may be lost when the rest is not; to register anew what is missing notes it again.
func (r *Runtime) Owners(ctx context.Context, entries []string) ([]string, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	var names []string
	err := r.s.do(ctx, "looking for entries", func() (err error) {
		names, err = r.s.names(ctx, entries)
		return err
	})
	return names, err
}
