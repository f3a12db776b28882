package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/stint-go/stint/store"
)

// view shows how far the work is: by a bar on a terminal, by a line for each job elsewhere.
type view struct {
	out io.Writer
	bar bool

	mu         sync.Mutex
	all, count int // jobs to be done in this run, and those that have ended
}

func newView(out *os.File) *view {
	return &view{out: out, bar: term.IsTerminal(int(out.Fd()))}
}

// begin is told what there is to do.
func (v *view) begin(pictures []*picture) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range pictures {
		if !p.earlier {
			v.all++
		}
	}
	v.draw()
}

// ended is told of a job that has ended.
func (v *view) ended(p *picture) {
	v.mu.Lock()
	v.count++
	v.draw()
	v.mu.Unlock()
	if p.job.State == store.Done {
		v.line("made", p, "")
	} else {
		v.line(string(p.job.State), p, p.job.LastError)
	}
}

// line says something of a picture, where there is no bar.
func (v *view) line(what string, p *picture, why string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.bar {
		return
	}
	if why != "" {
		why = ": " + why
	}
	fmt.Fprintf(v.out, "%-5s  %s%s\n", what, p.task.Picture, why)
}

const (
	barWidth  = 40
	clearLine = "\r\x1b[K"
)

func (v *view) draw() {
	if !v.bar {
		return
	}
	full := barWidth
	if v.all > 0 {
		full = barWidth * v.count / v.all
	}
	fmt.Fprintf(v.out, "%s[%s%s] %d of %d", clearLine, strings.Repeat("#", full), strings.Repeat(".", barWidth-full), v.count, v.all)
}

// note says something that is not about one picture.
func (v *view) note(text string) {
	fmt.Fprintln(v.above(v.out), text)
}

// above returns a writer to w for whole lines, which keeps the bar below them.
func (v *view) above(w io.Writer) io.Writer { return above{v, w} }

type above struct {
	v *view
	w io.Writer
}

func (a above) Write(lines []byte) (int, error) {
	a.v.mu.Lock()
	defer a.v.mu.Unlock()
	if a.v.bar {
		fmt.Fprint(a.v.out, clearLine)
	}
	n, err := a.w.Write(lines)
	a.v.draw()
	return n, err
}

// end sums up. It reports whether no thumbnail is missing that could have been made.
func (v *view) end(o options, pictures []*picture, took time.Duration) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.bar {
		fmt.Fprint(v.out, clearLine)
	}
	var made, earlier, left int
	var ended []*picture // without a thumbnail
	complete := true
	for _, p := range pictures {
		switch {
		case p.earlier:
			earlier++
		case p.job.State == store.Done:
			made++
		case p.job.State.Terminal():
			ended = append(ended, p)
			complete = complete && stageOf(p.job) == decoding // no picture, then
		default:
			left++
			complete = false
		}
	}
	for i, p := range ended {
		if i == 0 {
			fmt.Fprintln(v.out, "No thumbnail of:")
		}
		fmt.Fprintf(v.out, "  %s: %s: %s\n", p.task.Picture, p.job.State, p.job.LastError)
	}
	fmt.Fprintf(v.out, "%d made, %d dead, in %v: %.1f jobs/s", made, len(ended), took.Round(time.Millisecond),
		float64(made+len(ended))/took.Seconds())
	if earlier > 0 {
		fmt.Fprintf(v.out, "; %d were made earlier", earlier)
	}
	fmt.Fprintf(v.out, "\nThumbnails are in %s\n", o.out)
	switch {
	case left > 0 && o.redis == "":
		fmt.Fprintf(v.out, "%d are left; with -redis the next run would go on from here\n", left)
	case left > 0:
		fmt.Fprintf(v.out, "%d are left; run the same again to go on from here\n", left)
	}
	return complete
}
