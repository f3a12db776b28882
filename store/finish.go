package store

import "fmt"

// How a finish is told to exchange.lua, and what it says of one.

// letter is the state that the finish asks for.
func (f *Finish) letter() byte {
	switch f.Verb {
	case Complete:
		return 'd'
	case Bury:
		return 'x'
	case Cancel:
		return 'c'
	case Release:
		return 't'
	case Park:
		return 'p'
	case Snooze, Retry:
		return 's'
	}
	panic(fmt.Sprintf("stint: unknown verb %q", f.Verb))
}

// details adds the finish's details, each with its number and a letter, to the arguments of exchange.lua.
func (f *Finish) details(args []any, number int) []any {
	add := func(letter string, v any) { args = append(args, number, letter, v) }
	l := f.Lease
	after := l.run
	after.crashes = 0
	switch f.Verb {
	case Release:
		add("S", l.run.place)
		after.attempt--
	case Park:
		add("S", l.run.place)
		after.attempt--
	case Snooze, Retry:
		add("S", min(ceilMS(f.Delay), latest.UnixMilli())*16+int64(MaxPriority-l.Job.Priority))
		if f.Verb == Snooze {
			after.attempt--
		}
	}
	if after != l.run {
		add("N", after.String())
	}
	if f.Error != "" && f.Verb != Complete && f.Verb != Park {
		add("E", Cut(f.Error, MaxError))
	}
	if f.Progress != nil {
		add("P", []byte(f.Progress))
	}
	if f.Result != nil && f.Verb == Complete {
		add("R", []byte(f.Result))
	}
	if f.Verb == Park {
		add("W", f.Wait.words())
	}
	return args
}

// stateOf is the state that a letter stands for, "" for that of a lease that was lost.
func stateOf(letter byte) State {
	switch letter {
	case 't':
		return Todo
	case 's':
		return Scheduled
	case 'p':
		return Parked
	case 'd':
		return Done
	case 'x':
		return Dead
	case 'c':
		return Cancelled
	}
	return ""
}
