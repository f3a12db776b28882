package stint_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// The rules below are those of docs/architecture.md. They hold for what is built into an application; tests, and the
// rigs for them in internal, may import more.

const module = "github.com/stint-go/stint"

// mayImport says which of our packages a package may import; "..." covers what is below. A package that is not listed
// may import none, so that a new one is thought about.
var mayImport = map[string][]string{
	".":                 {},
	"retry":             {},
	"store":             {"internal/..."},
	"worker":            {"retry", "store", "internal/..."},
	"worker/workertest": {"retry", "store", "worker", "internal/..."},
	"middleware":        {"retry", "store", "worker"}, // a Handler is given a store.Job
	"tracing":           {"store", "worker"},
	"health":            {"worker"},
	"metrics":           {"store", "worker", "internal/batch"}, // a scrape must not wait for Redis
	"internal/...":      {"internal/..."},
	"internal/storetest": {
		"store", "internal/...",
	},
	"example/...": {"..."},
}

// onlyIn says, for what is imported from elsewhere, which packages may.
var onlyIn = map[string][]string{
	// Commands are written by store alone. Programs and test rigs make the client that it is given.
	"github.com/redis/go-redis/...":           {"store", "internal/storetest", "internal/redistest", "example/..."},
	"github.com/alicebob/miniredis/...":       {"store", "internal/storetest"},
	"github.com/prometheus/client_golang/...": {"metrics", "example/..."},
	"github.com/netresearch/go-cron":          {"internal/cronspec"},
	"github.com/sony/gobreaker/...":           {"middleware"},
	"go.opentelemetry.io/...":                 {"tracing", "example/..."},
	"testing/...":                             {"worker/workertest", "internal/storetest", "internal/redistest", "internal/promtest"},
	"pgregory.net/rapid":                      {"internal/storetest"},
	"go.uber.org/goleak":                      {},
}

// mayStart lists the packages that start goroutines: the runtime, and programs and test rigs.
var mayStart = []string{"worker/...", "internal/loop", "internal/batch", "internal/storetest", "example/..."}

func TestImportsRunOneWay(t *testing.T) {
	problems, files := breaches(t, os.DirFS("."))
	for _, p := range problems {
		t.Error(p)
	}
	if files < 10 {
		t.Errorf("only %d files were looked at", files)
	}
}

// breaches reads the Go files of a module, without tests and nested modules, and lists where they break a rule.
func breaches(t *testing.T, module fs.FS) (problems []string, files int) {
	err := fs.WalkDir(module, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name == "." {
				return nil
			}
			_, err := fs.Stat(module, path.Join(name, "go.mod"))
			if err == nil || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		src, err := fs.ReadFile(module, name)
		if err != nil {
			return err
		}
		files++
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		problems = append(problems, imports(set, f, path.Dir(name))...)
		problems = append(problems, goroutines(set, f, path.Dir(name))...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return problems, files
}

func imports(set *token.FileSet, f *ast.File, pkg string) (problems []string) {
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has let it pass, the compiler won't
		}
		at := set.Position(spec.Pos())
		if own, ok := cutModule(imported); ok {
			if !covers(allowance(pkg), own) {
				problems = append(problems, fmt.Sprintf("%s: %s may not import %s", at, pkg, own))
			}
			continue
		}
		for pattern, importers := range onlyIn {
			if covers([]string{pattern}, imported) && !covers(importers, pkg) {
				problems = append(problems, fmt.Sprintf("%s: %s may not import %s", at, pkg, imported))
			}
		}
	}
	return problems
}

// cutModule returns the path of one of our packages within the module.
func cutModule(imported string) (pkg string, ours bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// allowance is what mayImport has for a package: its own entry, or else that of what it is below.
func allowance(pkg string) []string {
	if own, ok := mayImport[pkg]; ok {
		return own
	}
	for pattern, allowed := range mayImport {
		if covers([]string{pattern}, pkg) {
			return allowed
		}
	}
	return nil
}

// covers reports whether one of the patterns stands for the package.
func covers(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		above, open := strings.CutSuffix(pattern, "...")
		return pkg == pattern || open && strings.HasPrefix(pkg+"/", above)
	})
}

// goroutines finds where a file starts one: a go statement, the method Go of a group, AfterFunc.
func goroutines(set *token.FileSet, f *ast.File, pkg string) (problems []string) {
	if covers(mayStart, pkg) {
		return nil
	}
	ast.Inspect(f, func(n ast.Node) bool {
		starts := false
		switch n := n.(type) {
		case *ast.GoStmt:
			starts = true
		case *ast.CallExpr:
			if method, ok := n.Fun.(*ast.SelectorExpr); ok {
				starts = method.Sel.Name == "Go" || method.Sel.Name == "AfterFunc"
			}
		}
		if starts {
			problems = append(problems, fmt.Sprintf("%s: %s may not start a goroutine", set.Position(n.Pos()), pkg))
		}
		return true
	})
	return problems
}

func TestBreachesOfTheRulesAreFound(t *testing.T) {
	imports := func(what string) string { return "package p\nimport _ \"" + what + "\"\n" }
	for _, c := range []struct{ file, src, want string }{
		{"retry/a.go", imports(module + "/store"), "retry/a.go:2:8: retry may not import store"},
		{"store/a.go", imports(module + "/internal/loop"), ""},
		{"store/a.go", imports(module + "/worker"), "store/a.go:2:8: store may not import worker"},
		{"worker/a.go", imports(module + "/store"), ""},
		{"worker/a.go", imports(module + "/middleware"), "worker/a.go:2:8: worker may not import middleware"},
		{"worker/a.go", imports(module), "worker/a.go:2:8: worker may not import ."},
		{"worker/a.go", imports("github.com/redis/go-redis/v9"), "worker/a.go:2:8: worker may not import github.com/redis/go-redis/v9"},
		{"worker/a.go", imports("testing"), "worker/a.go:2:8: worker may not import testing"},
		{"worker/a_test.go", imports("github.com/redis/go-redis/v9"), ""},
		{"internal/loop/a.go", imports(module + "/store"), "internal/loop/a.go:2:8: internal/loop may not import store"},
		{"internal/storetest/a.go", imports(module + "/store"), ""},
		{"unheard/of/a.go", imports(module + "/store"), "unheard/of/a.go:2:8: unheard/of may not import store"},
		{"example/x/a.go", imports(module + "/worker"), ""},
		{"nested/a.go", "not Go at all", "parsed"},
		{"store/a.go", "package p\nfunc f() { go f() }\n", "store/a.go:2:12: store may not start a goroutine"},
		{"store/a.go", "package p\nfunc f() { g.Go(f) }\n", "store/a.go:2:12: store may not start a goroutine"},
		{"store/a.go", "package p\nfunc f() { time.AfterFunc(1, f) }\n", "store/a.go:2:12: store may not start a goroutine"},
		{"worker/a.go", "package p\nfunc f() { go f() }\n", ""},
		{"internal/batch/a.go", "package p\nfunc f() { go f() }\n", ""},
	} {
		files := fstest.MapFS{c.file: {Data: []byte(c.src)}}
		if c.want == "parsed" { // a module of its own is not ours to read
			files["nested/go.mod"], c.want = &fstest.MapFile{}, ""
		}
		problems, _ := breaches(t, files)
		if got := strings.Join(problems, "\n"); got != c.want {
			t.Errorf("%s with %q:\ngot  %s\nwant %s", c.file, c.src, got, c.want)
		}
	}
}
