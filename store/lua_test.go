package store_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/storetest"
)

// luaFile is a script, taken apart into the comment at its head and the rest.
type luaFile struct{ name, head, body string }

func luaFiles(t *testing.T) []luaFile {
	t.Helper()
	paths, err := filepath.Glob("lua/*.lua")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	var all []luaFile
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := luaFile{name: strings.TrimSuffix(filepath.Base(path), ".lua")}
		for line := range strings.Lines(string(text)) {
			if f.body == "" && strings.HasPrefix(line, "--") {
				f.head += line
			} else {
				f.body += line
			}
		}
		all = append(all, f)
	}
	return all
}

// comment matches what Lua does not run.
var comment = regexp.MustCompile(`--[^\n]*`)

func TestEachScriptIsHeadedByWhatItDoesItsKeysArgumentsAndReply(t *testing.T) {
	for _, f := range luaFiles(t) {
		code := comment.ReplaceAllString(f.body, "")
		has := func(section string) bool {
			return regexp.MustCompile(`(?m)^-- ` + section + `: \S`).MatchString(f.head)
		}
		if first, _, _ := strings.Cut(f.head, "\n"); len(first) < 10 || regexp.MustCompile(`^-- (KEYS|ARGV|Returns)`).MatchString(first) {
			t.Errorf("%s: its first line does not say what it does: %q", f.name, first)
		}
		if !has("KEYS") {
			t.Errorf("%s: no KEYS in its head", f.name)
		}
		if f.name == "prelude" { // has no arguments of its own and returns nothing
			if strings.Contains(code, "ARGV") {
				t.Error("prelude uses ARGV")
			}
			continue
		}
		if !has("Returns") {
			t.Errorf("%s: no Returns in its head", f.name)
		}
		if uses := strings.Contains(code, "ARGV"); uses != has("ARGV") {
			t.Errorf("%s: uses ARGV: %v, has it in its head: %v", f.name, uses, has("ARGV"))
		}
	}
}

func TestScriptsUseOnlyWhatTheEmbeddedServerHasAndNothingUnbounded(t *testing.T) {
	allowed := []string{"TYPE", "TIME", "INFO", "GET", "SET", "HGET", "HMGET", "HSET", "HSETNX", "HDEL", "HLEN", "HGETALL", "ZADD", "ZREM", "ZRANGE",
		"ZREVRANGE", "ZCARD", "ZCOUNT", "ZSCORE", "ZMSCORE", "ZRANK", "ZREVRANK", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE", "PUBLISH", "HEXISTS", "EXISTS", "UNLINK", "HSTRLEN",
		"ZRANGEBYLEX",
		"HSCAN", "ZSCAN"} // the last two with a cursor and a count, see below
	command := regexp.MustCompile(`(?:call|many|look|add|drop)\('([^']*)'|(?:call)\(([^')]*) and '([^']*)' or '([^']*)'`)
	library := regexp.MustCompile(`\b(struct|bit|cmsgpack|cjson|loadstring|math\.random|redis\.(?:pcall|setresp|log|replicate_commands|set_repl|breakpoint|sha1hex))\b`)
	all := luaFiles(t)
	prelude := all[slices.IndexFunc(all, func(f luaFile) bool { return f.name == "prelude" })].body
	for _, f := range all {
		code := comment.ReplaceAllString(f.body, "")
		for _, m := range command.FindAllStringSubmatch(code, -1) {
			for _, name := range []string{m[1], m[3], m[4]} {
				if name != "" && !slices.Contains(allowed, name) {
					t.Errorf("%s calls %s", f.name, name)
				}
			}
		}
		tolerant := []string{"prelude", "remove", "requeue", "exchange", "sweep", "step"} // removing may fail, and so may reading another's key
		if m := library.FindString(code); m != "" && !(m == "redis.pcall" && slices.Contains(tolerant, f.name)) {
			t.Errorf("%s uses %s", f.name, m)
		}
		// Whole hashes are read only when a run is lost, and of steps that are known to have 64 KiB at most.
		if strings.Contains(code, "HGETALL") && f.name != "audit" && !(f.name == "exchange" && strings.Contains(code, "size <= 65536 ")) {
			t.Errorf("%s reads a whole hash", f.name)
		}
		// What scans goes by a cursor, or through the steps of one job, whose number is bounded, or removes what it finds.
		bounded := map[string]string{"audit": "cursor, 'COUNT', step", "load": "cursor, 'COUNT', step", "requeue": "key, cursor, 'COUNT', 1000",
			"remove": "stepped, cursor, 'COUNT', 1000", "step": "key, cursor, 'COUNT', 1000"}
		scans := regexp.MustCompile(`\b(KEYS|SCAN|HSCAN|ZSCAN|SSCAN)'`).MatchString(code)
		if scans && (bounded[f.name] == "" || !strings.Contains(code, bounded[f.name])) {
			t.Errorf("%s scans", f.name)
		}
		// A list without bounds may have any length; Lua's stack has not.
		for _, m := range regexp.MustCompile(`unpack\(([^()]*)\)`).FindAllStringSubmatch(code, -1) {
			if strings.Count(m[1], ",") < 2 && f.name != "prelude" {
				t.Errorf("%s: unpack(%s) has no bounds", f.name, m[1])
			}
		}
		for _, name := range globalsOf(code, prelude) {
			t.Errorf("%s sets a global, %s", f.name, name)
		}
	}
}

// Who imports the package pays for its scripts before main begins. Allocations tell that the prelude is taken apart once, on any machine: for each
// script it took three times as many, and 34 ms.
func TestTheScriptsAreMadeQuicklyWhenAProgramBegins(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	m := regexp.MustCompile(`stint/store @.* (\d+) allocs`).FindSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("%v: %s", err, out)
	}
	if n, _ := strconv.Atoi(string(m[1])); n > 45_000 {
		t.Errorf("it takes %d allocations", n)
	}
}

// globalsOf returns what a script sets and neither it nor the prelude declares: Redis refuses that when it comes to it, half-way.
func globalsOf(code, prelude string) (names []string) {
	declared := map[string]bool{}
	for _, place := range []string{`\blocal (\w+(?:,\s*\w+)*)`, `\bfor (\w+(?:, \w+)*)`, `\bfunction[ \w]*\(([^)]*)\)`, `\bfunction (\w+)`} {
		for _, m := range regexp.MustCompile(place).FindAllStringSubmatch(prelude+code, -1) {
			for name := range strings.FieldsFuncSeq(m[1], func(r rune) bool { return strings.ContainsRune(", \n", r) }) {
				declared[name] = true
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)(?:^|;|\b(?:then|do|else|end)\b)[ \t]*(\w+(?:, \w+)*) = `).FindAllStringSubmatch(code, -1) {
		for name := range strings.SplitSeq(m[1], ", ") {
			if !declared[name] {
				names = append(names, name)
			}
		}
	}
	return names
}

func TestGlobalsAreFoundWhereverTheyAreSet(t *testing.T) {
	for code, want := range map[string]string{
		"x = 1": "x", "  x = 1": "x", "if a then x = 1 end": "x", "local a\na, x = 1, 2": "x", "local function f(x)\n  x = 1\nend": "",
		"local a, x\nif a then\n  x = 1\nend": "", "for x = 1, 2 do\n  x = 3\nend": "", "local t = { x = 1 }": "", "shared = 1": "",
	} {
		if got := strings.Join(globalsOf(code, "local shared = 2\n"), " "); got != want {
			t.Errorf("%q sets %q, want %q", code, got, want)
		}
	}
}

// The one file that builds keys says what each is.
func TestKeysGoListsEveryKey(t *testing.T) {
	text, err := os.ReadFile("keys.go")
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), "\nconst (")
	said := strings.Join(regexp.MustCompile(`(?m)^//(.*)$`).FindAllString(head, -1), "\n")
	for name := range storetest.Cron {
		if !strings.Contains(said, "\t"+name+" ") && !strings.Contains(said, "\t"+name+":<entry>") {
			t.Errorf("keys.go does not say what %q is", name)
		}
	}
	for name := range storetest.Layout {
		if !regexp.MustCompile(`//\t.*\b` + name + `\b`).MatchString(said) {
			t.Errorf("keys.go does not say what %q is", name)
		}
	}
	for name := range storetest.Global {
		if !strings.Contains(said, name+" (") {
			t.Errorf("keys.go does not say what %q is", name)
		}
	}
	names := regexp.MustCompile(`(?s)keyNames = .*?\{(.*?)\}`).FindStringSubmatch(string(text))
	if names == nil {
		t.Fatal("keys.go has no keyNames")
	}
	for _, m := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(names[1], -1) {
		if storetest.Layout[m[1]] == "" {
			t.Errorf("the contract suite does not know the key %q", m[1])
		}
	}
}

// Only the store's own go files speak to Redis in commands, and only keys.go builds a key.
func TestNoOtherFileBuildsAKey(t *testing.T) {
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") || path == "keys.go" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			code, _, _ := strings.Cut(line, "//")
			if strings.Contains(code, `":{`) || strings.Contains(code, `"}:`) || strings.Contains(code, "prefix +") {
				t.Errorf("%s builds a key: %s", path, strings.TrimSpace(line))
			}
		}
	}
}
