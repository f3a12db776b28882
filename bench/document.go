package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Between these lines performance.md holds what this program writes.
const (
	resultsBegin = "<!-- results: written by make bench -->"
	resultsEnd   = "<!-- end of the results -->"
)

// document writes the table into performance.md and the plots beside it.
func (b *bench) document(dir, setting string, rows []row) error {
	for name, p := range b.plots() {
		if err := p.write(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	path := filepath.Join(dir, "performance.md")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), resultsBegin)
	_, after, end := strings.Cut(rest, resultsEnd)
	if !ok || !end {
		return fmt.Errorf("%s has no place for the results", path)
	}
	text = []byte(before + resultsBegin + "\n\n" + setting + "\n\n" + markdown(rows) + "\n" + resultsEnd + after)
	return os.WriteFile(path, text, 0o644)
}

// markdown is the table for the documentation.
func markdown(rows []row) string {
	var s strings.Builder
	fmt.Fprintf(&s, "| %s |\n|---|---|%s---|---|\n", strings.Join(heads, " | "), strings.Repeat("--:|", 5))
	for _, r := range rows {
		fmt.Fprintf(&s, "| %s |\n", strings.Join(r.cells(), " | "))
	}
	return s.String()
}

// plots are those that can be drawn from what was measured, by file name.
func (b *bench) plots() map[string]plot {
	all := map[string]plot{
		"performance-workers.svg": {"What a job costs with more workers", []panel{
			b.panel("jobs a second", "workers", byWorkers, "jobs/s"),
			b.panel("Redis CPU a job, µs", "workers", byWorkers, "redis µs"),
			b.panel("Go CPU a job, µs", "workers", byWorkers, "go µs"),
		}},
		"performance-waiting.svg": {"What a job costs with more jobs waiting", []panel{
			b.panel("Redis CPU a job, µs", "jobs waiting", byWaiting, "redis µs"),
			b.panel("memory in Redis a waiting job, bytes", "jobs waiting", byWaiting, "memory B"),
		}},
		"performance-million.svg": {"One process, many jobs", []panel{
			b.series("live heap, MB", "heap MB"),
			b.series("goroutines", "goroutines"),
		}},
	}
	for name, p := range all {
		for _, a := range p.panels {
			if len(a.lines) == 0 {
				delete(all, name)
			}
		}
	}
	return all
}

// panel draws a figure over the numbers of a growth.
func (b *bench) panel(title, x string, trials []*trial, name string) panel {
	p := panel{title: title, x: x, logX: true}
	for _, l := range []line{{name: us, color: ourColor}, {name: them, color: peerColor}} {
		for _, t := range trials {
			if b.got[t] == nil || b.got[t].failed[l.name] != nil {
				continue
			}
			if f, ok := median(name)(b.got[t].samples[l.name]); ok {
				l.xs, l.ys = append(l.xs, t.number), append(l.ys, f.value)
			}
		}
		if len(l.xs) > 0 {
			p.lines = append(p.lines, l)
		}
	}
	return p
}

// series draws a figure over the jobs that have run.
func (b *bench) series(title, name string) panel {
	p := panel{title: title, x: "jobs done"}
	if got := b.got[million]; got != nil {
		for _, s := range got.samples[usKeep] {
			p.lines = append(p.lines, line{us, ourColor, s["ran"], s[name]})
		}
	}
	return p
}
