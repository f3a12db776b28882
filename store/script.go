package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var sources embed.FS

// script is one of lua/, in the form for a real server and in that for the embedded one, which knows no first line with
// flags.
type script struct {
	op             string
	real, embedded *redis.Script
}

// The flags of the scripts: what ends or extends a lease, or makes room, runs while Redis is out of memory; what only
// reads says so. The rest is refused as a whole, before its first write, when there is no memory.
const (
	allowOOM = "allow-oom"
	noWrites = "no-writes"
)

var (
	scriptEnqueue   = load("enqueue", "")
	scriptExchange  = load("exchange", allowOOM)
	scriptHeartbeat = load("heartbeat", allowOOM)
	scriptReap      = load("reap", allowOOM)
	scriptLeave     = load("leave", allowOOM)
	scriptAwait     = load("await", allowOOM)
	scriptPause     = load("pause", allowOOM)
	scriptRequeue   = load("requeue", allowOOM)
	scriptDelete    = load("delete", allowOOM)
	scriptCancel    = load("cancel", allowOOM)
	scriptGet       = load("get", noWrites)
	scriptList      = load("list", noWrites)
	scriptRan       = load("ran", noWrites)
	scriptStats     = load("stats", noWrites)
	scriptExplain   = load("explain", noWrites)
	scriptSelect    = load("select", noWrites)
	scriptAudit     = load("audit", allowOOM)
	scriptRemove    = load("remove", allowOOM)

	scriptOwn          = load("own", "")
	scriptDisown       = load("disown", allowOOM)
	scriptRegister     = load("register", "")
	scriptEntries      = load("entries", noWrites)
	scriptDispatch     = load("dispatch", "")
	scriptUndispatched = load("undispatched", allowOOM)
	scriptEnable       = load("enable", allowOOM)
	scriptUnschedule   = load("unschedule", allowOOM)

	scriptStep      = load("step", allowOOM)
	scriptLoad      = load("load", noWrites)
	scriptDeliver   = load("deliver", allowOOM)
	scriptSettle    = load("settle", allowOOM)
	scriptFates     = load("fates", noWrites)
	scriptVet       = load("vet", noWrites)
	scriptOrphan    = load("orphan", noWrites)
	scriptSweep     = load("sweep", allowOOM)
	scriptRecall    = load("recall", allowOOM)
	scriptForget    = load("forget", allowOOM)
	scriptLapse     = load("lapse", allowOOM)
	scriptOpen      = load("unresolved", noWrites)
	scriptAnnounce  = load("announce", allowOOM)
	scriptProcesses = load("processes", noWrites)
	scriptMark      = load("mark", allowOOM)
)

func load(name, flags string) script {
	src := source(name)
	if !slices.Contains([]string{"announce", "processes", "own", "disown", "mark"}, name) { // those use nothing of the prelude
		src = link(src)
	}
	shebang := "#!lua"
	if flags != "" {
		shebang += " flags=" + flags
	}
	return script{name, redis.NewScript(shebang + "\n" + src), redis.NewScript(src)}
}

func source(name string) string {
	b, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // the file is part of the build
	}
	return string(b)
}

// paragraph is one of the prelude: the names that it defines, and those that it has in its code.
type paragraph struct {
	text          string
	defines, uses []string
}

var (
	defines = regexp.MustCompile(`(?m)^local (?:function )?([^=(]+)`)
	names   = regexp.MustCompile(`\w+`)
	remarks = regexp.MustCompile(`--.*`)

	prelude = paragraphs(source("prelude"))
)

// paragraphs takes the prelude apart, once for all scripts. A paragraph ends with an empty line.
func paragraphs(src string) (all []paragraph) {
	for text := range strings.SplitSeq(src, "\n\n") {
		p := paragraph{text: text, uses: namesIn(text)}
		for _, d := range defines.FindAllStringSubmatch(text, -1) {
			p.defines = append(p.defines, names.FindAllString(d[1], -1)...)
		}
		all = append(all, p)
	}
	return all
}

func namesIn(text string) []string {
	return names.FindAllString(remarks.ReplaceAllString(text, ""), -1)
}

// link puts those paragraphs of the prelude before a script that it uses, itself or by way of others: making functions that nobody
// calls was a tenth of the cost of a small call, and there may be no more than 200 local names.
func link(src string) string {
	used := map[string]bool{}
	use := func(all []string) {
		for _, name := range all {
			used[name] = true
		}
	}
	use(namesIn(src))
	parts := []string{src}
	for _, p := range slices.Backward(prelude) { // what is used stands before its use
		if slices.ContainsFunc(p.defines, func(name string) bool { return used[name] }) {
			use(p.uses)
			parts = append(parts, p.text)
		}
	}
	slices.Reverse(parts)
	return strings.Join(parts, "\n\n")
}

// errStale answers a request that is older than the last of its lane. Nobody waits for it any more.
var errStale = errors.New("a later request of the lane has been answered")

// run calls a script and returns a reader of its reply that is past the code.
func (s *Store) run(ctx context.Context, sc script, keys []string, args ...any) (reader, error) {
	reply, acked, err := s.send(ctx, sc, keys, args)
	if err != nil {
		return reader{}, err
	}
	r, err := decoded(reply)
	if err != nil {
		return reader{}, err
	}
	return r, acked
}

// decoded turns the code of a reply into an error, or returns a reader of the rest.
func decoded(reply []any) (reader, error) {
	r := reader{v: reply}
	switch code := r.int(); code {
	case 0:
		return reader{v: reply[1:]}, nil
	case -1:
		return reader{}, errStale
	case -2:
		return reader{}, &KeyError{Key: r.str(), Type: r.str(), Want: r.str()}
	default:
		return reader{}, fmt.Errorf("unknown code %d", code)
	}
}

// reader takes a script's reply apart. What is missing or of another type reads as zero: the scripts and their
// readers are held together by the contract suite.
type reader struct {
	v []any
	i int
}

func (r *reader) next() any {
	if r.i >= len(r.v) {
		return nil
	}
	r.i++
	return r.v[r.i-1]
}

func (r *reader) more() bool { return r.i < len(r.v) }

func (r *reader) int() int64 {
	n, _ := r.next().(int64)
	return n
}

func (r *reader) str() string {
	s, _ := r.next().(string)
	return s
}

func (r *reader) raw() []byte {
	s, ok := r.next().(string)
	if !ok {
		return nil
	}
	return []byte(s)
}

func (r *reader) ids() []uuid.UUID {
	l := r.list()
	var all []uuid.UUID
	for l.more() {
		var id uuid.UUID
		copy(id[:], l.str())
		all = append(all, id)
	}
	return all
}

func (r *reader) list() reader {
	l, _ := r.next().([]any)
	return reader{v: l}
}

// typed turns the server's refusals into ErrServer. Redis tells them apart by the first word of the message.
func typed(err error) error {
	if errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("%w: %w", ErrServer, err)
	}
	var re redis.Error
	if !errors.As(err, &re) || errors.Is(err, ErrServer) {
		return err
	}
	switch code, _, _ := strings.Cut(re.Error(), " "); code {
	case "OOM", "READONLY", "MISCONF", "NOPERM", "NOREPLICAS", "MASTERDOWN", "WRONGTYPE", "NOAUTH", "WRONGPASS":
		return fmt.Errorf("%w: %w", ErrServer, err)
	}
	return err
}
