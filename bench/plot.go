package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"strconv"
	"strings"
)

// plot is a picture of panels beside each other.
type plot struct {
	title  string
	panels []panel
}

// panel is a pair of axes with lines. What is logarithmic has a grid line for each power of ten.
type panel struct {
	title      string // what the y axis shows, with its unit
	x          string
	logX, logY bool
	lines      []line
}

// line is drawn through its points in their order; it needs at least one.
type line struct {
	name, color string
	xs, ys      []float64
}

const (
	ourColor  = "#0b7285"
	peerColor = "#d9480f"
	inkColor  = "#495057"
	gridColor = "#e9ecef"
)

// Sizes in pixels: of a panel's axes, and the space around them.
const (
	axisW, axisH          = 300.0, 200.0
	leftPad, rightPad     = 62.0, 24.0
	topPad, bottomPad     = 86.0, 48.0
	panelW, pictureHeight = leftPad + axisW + rightPad, topPad + axisH + bottomPad
)

// write draws the plot into a file, as SVG.
func (p plot) write(path string) error {
	var s strings.Builder
	width := panelW * float64(len(p.panels))
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="%s">`+"\n",
		width, pictureHeight, width, pictureHeight, inkColor)
	fmt.Fprintf(&s, `<rect width="100%%" height="100%%" rx="6" fill="#fff"/>`+"\n")
	text(&s, 16, 26, "start", ` font-size="15" font-weight="bold" fill="#212529"`, p.title)
	for i, a := range p.panels {
		a.draw(&s, float64(i)*panelW+leftPad, topPad)
	}
	s.WriteString("</svg>\n")
	return os.WriteFile(path, []byte(s.String()), 0o644)
}

func text(s *strings.Builder, x, y float64, anchor, more, what string) {
	fmt.Fprintf(s, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, more, html.EscapeString(what))
}

// draw puts the panel where the upper left corner of its axes is to be.
func (p panel) draw(s *strings.Builder, left, top float64) {
	var xs, ys []float64
	for _, l := range p.lines {
		xs, ys = append(xs, l.xs...), append(ys, l.ys...)
	}
	x, y := newScale(xs, p.logX, left, left+axisW), newScale(ys, p.logY, top+axisH, top)
	text(s, left-40, top-34, "start", ` font-weight="bold"`, p.title)
	at := left - 40
	for _, l := range p.lines {
		fmt.Fprintf(s, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`+"\n", at+4, top-19, l.color)
		text(s, at+13, top-15, "start", "", l.name)
		at += 26 + 6.6*float64(len(l.name))
	}
	for _, v := range y.ticks {
		fmt.Fprintf(s, `<path d="M%.1f %.1fh%.1f" stroke="%s"/>`+"\n", left, y.at(v), axisW, gridColor)
		text(s, left-8, y.at(v)+4, "end", "", short(v))
	}
	for _, v := range x.ticks {
		fmt.Fprintf(s, `<path d="M%.1f %.1fv5" stroke="%s"/>`+"\n", x.at(v), top+axisH, inkColor)
		text(s, x.at(v), top+axisH+19, "middle", "", short(v))
	}
	fmt.Fprintf(s, `<path d="M%.1f %.1fh%.1f" stroke="%s"/>`+"\n", left, top+axisH, axisW, inkColor)
	text(s, left+axisW/2, top+axisH+37, "middle", "", p.x)
	for _, l := range p.lines {
		l.draw(s, x, y)
	}
}

func (l line) draw(s *strings.Builder, x, y scale) {
	var d strings.Builder
	for i := range l.xs {
		fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(i, 1)], x.at(l.xs[i]), y.at(l.ys[i]))
	}
	fmt.Fprintf(s, `<path d="%s" fill="none" stroke="%s" stroke-width="2" stroke-linejoin="round"/>`+"\n", d.String(), l.color)
	if len(l.xs) > 20 {
		return // a dot for each would hide the line
	}
	for i := range l.xs {
		fmt.Fprintf(s, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", x.at(l.xs[i]), y.at(l.ys[i]), l.color)
	}
}

// scale maps values to pixels.
type scale struct {
	log       bool
	low, high float64 // values at
	from, to  float64 // these pixels
	ticks     []float64
}

// newScale has room for all values. A linear one begins at 0.
func newScale(v []float64, log bool, from, to float64) scale {
	low, high := math.Inf(1), math.Inf(-1)
	for _, x := range v {
		low, high = min(low, x), max(high, x)
	}
	s := scale{log: log, from: from, to: to}
	if log {
		first, last := math.Floor(math.Log10(low)+1e-9), math.Ceil(math.Log10(high)-1e-9)
		last = max(last, first+1)
		for e := first; e <= last; e++ {
			s.ticks = append(s.ticks, math.Pow(10, e))
		}
	} else {
		step := nice(max(high, 1e-9) / 4)
		for i := 0; i == 0 || s.ticks[i-1] < high; i++ {
			s.ticks = append(s.ticks, step*float64(i))
		}
	}
	s.low, s.high = s.ticks[0], s.ticks[len(s.ticks)-1]
	return s
}

// nice is the least of 1, 2, 5, 10 and so on that is not below v.
func nice(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*p >= v {
			return m * p
		}
	}
	return 10 * p
}

func (s scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		v, low, high = math.Log10(v), math.Log10(low), math.Log10(high)
	}
	return s.from + (v-low)/(high-low)*(s.to-s.from)
}

// short writes a number for an axis: 20k, 1M.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 4, 64) + "M"
	case v >= 1e4:
		return strconv.FormatFloat(v/1e3, 'g', 4, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
