package cronspec

import (
	"errors"
	"fmt"
	"time"
)

// Zone returns a zone by its IANA name; "" is UTC. "Local" is refused: it is another one on another machine.
func Zone(name string) (*time.Location, error) { return zone(name, time.LoadLocation) }

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
