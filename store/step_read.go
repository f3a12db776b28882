package store

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

var errStep = errors.New("the record of the step can't be read")

// readStep reads a record. One that can't be read is a step that failed for that reason.
func readStep(name, record string) Step {
	s := Step{Name: name}
	line, body, ok := strings.Cut(record, "\n")
	f := strings.SplitN(line, " ", 5)
	if !ok || len(f[0]) < 2 || s.fill(f[0][0], f, body) != nil {
		return Step{Name: name, State: StepFailed, Error: errStep.Error()}
	}
	return s
}

// fill reads the parts of a record by its letter.
func (s *Step) fill(letter byte, f []string, body string) (err error) {
	number := func(i int) (n int64) {
		if i < len(f) {
			text := f[i]
			if i == 0 {
				text = text[1:]
			}
			var bad error
			if n, bad = strconv.ParseInt(text, 10, 64); bad != nil {
				err = errStep
			}
			return n
		}
		err = errStep
		return 0
	}
	s.Number, s.Generation = int(number(0)), int(number(1))
	s.State = StepCompleted
	switch letter {
	case 'c':
		s.Kind, s.Result = LocalStep, json.RawMessage(body)
	case 'e':
		s.Kind, s.State, s.Error = LocalStep, StepFailed, body
	case 'z':
		s.Kind, s.Until = SleepStep, fromMS(number(2))
	case 'k':
		s.Kind, s.Saves, s.Result = CursorStep, int(number(2)), json.RawMessage(body)
	case 'd', 'r', 'f':
		at := len(f) - 1
		if len(body) < idLen || at < 2 {
			return errStep
		}
		copy(s.Child[:], body)
		s.Kind, s.Instance, body = AsyncStep, f[at], body[idLen:]
		return s.fillChild(letter, body, number, err)
	default:
		return errStep
	}
	return err
}

func (s *Step) fillChild(letter byte, body string, number func(int) int64, err error) error {
	switch letter {
	case 'd':
		s.State, s.Sweeps, s.Dispatched, s.again = StepDispatched, int(number(2)), fromMS(number(3)), body
	case 'r':
		s.Fate = FateDone
		if body != "" {
			s.Result = json.RawMessage(body)
		}
	default:
		if body == "" {
			return errStep
		}
		s.State, s.Fate, s.Error = StepFailed, Fate(body[0]), body[1:]
	}
	return err
}

// readSteps reads names and records; what is noted of a wait is none of these.
func readSteps(job uuid.UUID, list []any) []Step {
	p := reader{v: list}
	var all []Step
	for p.more() {
		name, record := p.str(), p.str()
		if strings.HasPrefix(name, "\x01") {
			continue
		}
		s := readStep(name, record)
		s.Job = job
		all = append(all, s)
	}
	return all
}
