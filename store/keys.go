package store

import (
	"encoding/hex"
	"strings"

	"github.com/google/uuid"
)

// This file is the only place where a key or a channel is named.
//
// An instance's keys share the hash tag {instance}, so that each script touches one slot:
//
//	jobs       hash  id -> record: what never changes, and of short ones who ran it first (see record.go)
//	runs       hash  id -> "attempt crashes place started worker": the latest run, where the record doesn't tell
//	errors     hash  id -> last error, or the reason of death
//	progress   hash  id -> JSON
//	results    hash  id -> JSON
//	todo       zset  id by place
//	scheduled  zset  id by due time and priority
//	doing      zset  worker by its lease's deadline: a claim after a finish then only changes a score
//	parked     zset  id by the time that wakes it, or, if only a step does, 2^52 and the time it parked
//	done, dead, cancelled
//	           zset  id by the time it ended
//	workers    hash  worker -> lease: id, nonce, process; there, and in doing, exactly while the worker holds the job
//	cancels    zset  id of a doing job that is to be cancelled, by the time of the request
//	awaited    zset  id that a client waits for, by the time its interest lapses
//	waiting    zset  channel of a process that asked for work in vain, by the time it asked
//	meta       hash  seq, paused, maxrec, limit, rate, reaped, grace, lease, leased, knower
//	suspects   zset  id by place: todo, but one crash short of being dead
//	probes     hash  process -> worker and lease of the suspect that it runs
//	deadlines  zset  id by its deadline, which is negative while it is doing
//	owners     hash  id -> mode and key of uniqueness
//	locks      hash  key -> mode, id, and in a window the time when it ends
//	windows    zset  key by that time
//	stepped    hash  id -> of a job with steps: generation, epoch, last number, records, their bytes, how many it may have, open children
//	                 of this generation; of one that was removed before its children were seen to, its next generation alone
//	step_result:<id>
//	           hash  name -> record of a step (see steps.go); what the job waits for while it is parked
//	children   zset  open children, all with the score 0: parent, generation in 6 digits, child, time in 13, instance, line's end, name
//	chores     zset  what the sweeper has to look after, by when: o and an entry of children; r and a child whose outcome is to be
//	                 delivered; s, c (cancel) or d (let go), a job that ended and a generation: its children
//	parents    hash  id of a child -> its parent, that one's instance, line's end, name of the step
//	outbox     hash  id of a child that ended -> its fate, length of what parents has of it, that, its result or why it failed
//	lane:<id>  string, expiring: the last request of a lane and its answer (see lane.go)
//	replicas   string, expiring: written so that replicas acknowledge it, where they are waited for (see replicas.go)
//	cron       hash  entry -> definition: JSON (see register.go)
//	cron_jobs  hash  entry -> its job: deadline, record less its head
//	cron_ticks hash  entry -> "enabled latest last fingerprint fingerprint job": the latest tick that is decided, the last that was
//	           dispatched and its job; "" -> the number of changes of entries
//	cron_dispatch:<entry>
//	           zset  record of a tick, by tick (see dispatches.go)
//	cron_removed:<entry>
//	           string, expiring: the entry was removed, and is not registered again by those who had registered it
//
// Ids are their 16 bytes. A place is (10-priority)*9*10^14 + seq, and a due time is ms*16 + (10-priority): both are whole
// numbers below 2^53, so that a zset's score holds them exactly. seq is a clock that never stands still or goes back:
// the greater of the last one plus one and 256 times the milliseconds since 2000. So the place also tells since when.
//
// Global keys, each touched alone: instances (set), processes (zset, JSON by expiry), format (string), entries (hash: of cron, to their
// instances).
//
// Channels: process:<hex id> wakes or tells a process, ended:<hex id> announces that an awaited job has ended.

// The keys of an instance in the order of KEYS in each script: first those that are mostly there.
const (
	kJobs = iota
	kRuns
	kWorkers
	kMeta
	kTodo
	kDoing
	kDone
	kWaiting
	kErrors
	kProgress
	kResults
	kScheduled
	kDead
	kCancelled
	kParked
	kCancels
	kAwaited
	kSuspects
	kDeadlines
	kWindows
	kProbes
	kLocks
	kOwners
	kStepped
	kChildren
	kChores
	kParents
	kOutbox
	kCount
)

var keyNames = [kCount]string{"jobs", "runs", "workers", "meta", "todo", "doing", "done", "waiting",
	"errors", "progress", "results", "scheduled", "dead",
	"cancelled", "parked", "cancels", "awaited", "suspects", "deadlines", "windows", "probes", "locks", "owners",
	"stepped", "children", "chores", "parents", "outbox"}

type keyspace struct{ prefix string }

// instance returns the keys of an instance in the order of keyNames, with room for a lane's key.
func (k keyspace) instance(name string) []string {
	base := k.prefix + ":{" + name + "}:"
	keys := make([]string, kCount, kCount+1)
	for i, n := range keyNames {
		keys[i] = base + n
	}
	return keys
}

func (k keyspace) lane(instance string, id uuid.UUID) string {
	return k.prefix + ":{" + instance + "}:lane:" + hex.EncodeToString(id[:])
}

func (k keyspace) replicas(instance string) string { return k.prefix + ":{" + instance + "}:replicas" }

// recordsOf returns the key of a job's step records.
func (k keyspace) recordsOf(instance string, job uuid.UUID) string {
	return k.prefix + ":{" + instance + "}:step_result:" + hex.EncodeToString(job[:])
}

// cron returns the keys of an instance's entries: cron, cron_jobs, cron_ticks.
func (k keyspace) cron(instance string) []string {
	base := k.prefix + ":{" + instance + "}:"
	return []string{base + "cron", base + "cron_jobs", base + "cron_ticks"}
}

func (k keyspace) dispatches(instance, entry string) string {
	return k.prefix + ":{" + instance + "}:cron_dispatch:" + entry
}

func (k keyspace) removed(instance, entry string) string {
	return k.prefix + ":{" + instance + "}:cron_removed:" + entry
}

// instanceOf is the instance whose hash tag a key has; neither it nor a prefix has a brace in it.
func instanceOf(key string) string {
	_, rest, _ := strings.Cut(key, ":{")
	instance, _, _ := strings.Cut(rest, "}:")
	return instance
}

func (k keyspace) entries() string   { return k.prefix + ":entries" }
func (k keyspace) instances() string { return k.prefix + ":instances" }
func (k keyspace) processes() string { return k.prefix + ":processes" }
func (k keyspace) format() string    { return k.prefix + ":format" }

func (k keyspace) process(id uuid.UUID) string {
	return k.prefix + ":process:" + hex.EncodeToString(id[:])
}

func (k keyspace) ended(job uuid.UUID) string {
	return k.prefix + ":ended:" + hex.EncodeToString(job[:])
}

// ValidateInstance returns nil for a name of 1 to 128 letters, digits and . _ - / : and an ErrInvalid for any other.
func ValidateInstance(name string) error { return validName("instance", name) }

func validName(what, name string) error {
	if len(name) < 1 || len(name) > 128 {
		return invalid("%s name %.200q is of %d bytes; 1 to 128 are allowed", what, name, len(name))
	}
	bad := strings.IndexFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-/:", r))
	})
	if bad >= 0 {
		return invalid("%s name %q: only letters, digits and . _ - / : are allowed, not what stands at byte %d", what, name, bad)
	}
	return nil
}
