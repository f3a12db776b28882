package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"unicode/utf8"
)

// row is a measure that was taken. Absent numbers are those that were not measured, or that there is nothing to compare with.
type row struct {
	Name   string   `json:"name"`
	Unit   string   `json:"unit"`
	Ours   *float64 `json:"ours"`
	Peer   *float64 `json:"peer"`
	Ratio  *float64 `json:"ratio"`
	Budget *string  `json:"budget"`
	OK     *bool    `json:"ok"` // null without a budget

	ours, peer figure
}

// take reads a measure off what its trial brought.
func (b *bench) take(m measure) row {
	r := row{Name: m.name, Unit: m.unit}
	var ok bool
	got := b.got[m.from]
	if got == nil {
		got = &brought{}
	}
	read := func(v string) (figure, bool) {
		if v == "" || got.failed[v] != nil {
			return figure{}, false
		}
		return m.value(got.samples[v])
	}
	ratio := math.NaN()
	if r.ours, ok = read(m.ours); ok {
		r.Ours = &r.ours.value
	}
	if r.peer, ok = read(m.peer); ok {
		r.Peer = &r.peer.value
	}
	if r.Ours != nil && r.Peer != nil && *r.Peer != 0 {
		ratio = *r.Ours / *r.Peer
		r.Ratio = &ratio
	}
	if m.budget.holds != nil {
		holds := r.Ours != nil && m.budget.holds(*r.Ours, ratio)
		r.Budget, r.OK = &m.budget.text, &holds
	}
	return r
}

// faults is the row that says how many jobs were lost, or doubled, in all rounds of all trials.
func (b *bench) faultRow(what string) row {
	us, them, none, ok := b.faults[ours][what], b.faults[peers][what], "0", b.faults[ours][what] == 0
	return row{Name: "jobs " + what + " in all rounds", Ours: &us, Peer: &them, Budget: &none, OK: &ok}
}

var heads = []string{"measure", "unit", "ours", "range", "peer", "range", "ratio", "budget", ""}

// cells are a row in words.
func (r row) cells() []string {
	number := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return round(*v)
	}
	between := func(v *float64, f figure) string {
		if v == nil || f.low >= f.high {
			return ""
		}
		return round(f.low) + " to " + round(f.high)
	}
	c := []string{r.Name, r.Unit, number(r.Ours), between(r.Ours, r.ours), number(r.Peer), between(r.Peer, r.peer), number(r.Ratio), "", ""}
	if r.Budget != nil {
		c[7], c[8] = *r.Budget, "MISSED"
		if *r.OK {
			c[8] = "ok"
		}
	}
	return c
}

// print writes the table for people.
func print(w io.Writer, rows []row) {
	lines := [][]string{heads}
	for _, r := range rows {
		lines = append(lines, r.cells())
	}
	width := make([]int, len(heads))
	for _, l := range lines {
		for i, c := range l {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, l := range lines {
		var s strings.Builder
		for i, c := range l {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i < 2 || i > 6 {
				s.WriteString(c + pad + "  ")
			} else {
				s.WriteString(pad + c + "  ")
			}
		}
		fmt.Fprintln(w, strings.TrimRight(s.String(), " "))
	}
}

// save writes results.json.
func save(path string, rows []row) error {
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
