package cronspec

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// zones are those that were loaded, by their names: as many as there are zones, at most. Each takes reading a file, or a part of one.
var zones sync.Map

// Zone returns a zone by its IANA name; "" is UTC. "Local" is refused: it is another one on another machine. A zone is loaded once: what
// becomes of its file later is for the next process.
func Zone(name string) (*time.Location, error) {
	known, _ := zones.Load(name)
	if loc, ok := known.(*time.Location); ok {
		return loc, nil
	}
	loc, err := zone(name, time.LoadLocation)
	if err == nil {
		zones.Store(name, loc)
	}
	return loc, err
}

var errNoZones = errors.New(`this machine has no zone data: import _ "time/tzdata" into the program`)

func zone(name string, load func(string) (*time.Location, error)) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New("the zone Local is another one on another machine")
	}
	loc, err := load(name)
	if err == nil {
		return loc, nil
	}
	if _, none := load("Europe/London"); none != nil {
		return nil, fmt.Errorf("zone %.80q: %w", name, errNoZones)
	}
	return nil, fmt.Errorf("there is no zone %.80q", name)
}
