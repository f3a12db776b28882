package store

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"
)

// StepPage is a part of a listing of steps. Next is empty on the last page.
type StepPage struct {
	Steps []Step
	Next  string
}

// Steps lists the steps of a job, a page at a time: some 1,000, or a MiB, in no particular order from page to page and by their
// numbers within one. cursor is Next of the page before, or "". A step may come twice while steps are written. ErrNotFound if there is no such
// job.
func (s *Store) Steps(ctx context.Context, job uuid.UUID, cursor string) (StepPage, error) {
	var page StepPage
	if cursor == "" {
		cursor = "0"
	}
	if _, err := strconv.ParseUint(cursor, 10, 64); err != nil {
		return page, invalid("the cursor %.40q is none", cursor)
	}
	err := s.at(ctx, "listing steps", job, func(instance string, _ []string) (err error) {
		page.Steps, page.Next, err = s.loadSteps(ctx, instance, job, cursor, "", new(Steps))
		return err
	})
	if page.Next == "0" {
		page.Next = ""
	}
	slices.SortFunc(page.Steps, func(a, b Step) int { return a.Number - b.Number })
	return page, err
}

// Step reads one step of a job. ErrNotFound if there is no such job, or no such step in it.
func (s *Store) Step(ctx context.Context, job uuid.UUID, name string) (Step, error) {
	var step Step
	if err := ValidateStep(name); err != nil {
		return step, err
	}
	err := s.at(ctx, "reading a step", job, func(instance string, _ []string) error {
		found, _, err := s.loadSteps(ctx, instance, job, "0", name, new(Steps))
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("%w: step %q of job %s", ErrNotFound, name, job)
		}
		step = found[0]
		return nil
	})
	return step, err
}

// Unresolved lists the steps of an instance's jobs whose children have not ended as far as is known, at most 100 a page, in the order of the
// jobs' ids. cursor is Next of the page before, or "". Of each step its job, name, child, instance and generation are told.
func (s *Store) Unresolved(ctx context.Context, instance, cursor string) (StepPage, error) {
	const most = 100
	var page StepPage
	if err := ValidateInstance(instance); err != nil {
		return page, err
	}
	last, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return page, invalid("the cursor %.40q is none", cursor)
	}
	err = s.do(ctx, "listing unresolved steps", func() error {
		p, err := s.run(ctx, scriptOpen, s.instanceKeys(instance), last, most)
		if err != nil {
			return err
		}
		l := p.list()
		if len(l.v) == most {
			page.Next = base64.RawURLEncoding.EncodeToString([]byte(fmt.Sprint(l.v[most-1])))
		}
		for l.more() {
			if k, err := readKid(l.str(), instance); err == nil {
				page.Steps = append(page.Steps, k.step())
			}
		}
		return nil
	})
	return page, err
}
