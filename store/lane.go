package store

import (
	"strconv"
	"sync"

	"github.com/google/uuid"

	"github.com/stint-go/stint/internal/ids"
)

// Lane makes requests happen once. The requests of a lane are numbered and one of them is in flight at a time; the
// instance's slot keeps the last number and what was answered. A request that is sent again, by the caller or inside
// the Redis client, carries the same number and is answered as the first was; a lower number is refused.
//
// So after an error the caller settles: it makes the same call again on the same lane until it is answered, or it
// abandons the lane and takes a new one. The zero Lane is ready. A Lane belongs to one instance and is not safe for
// concurrent use. The slot forgets a lane an hour after its last request.
type Lane struct {
	id     uuid.UUID
	number uint64
}

// lanes are those that a Store has used for requests of its own, whose outcome does not matter when it is not known: they are made anew then.
type lanes struct {
	mu   sync.Mutex
	free map[string][]*Lane // by instance
}

// use calls f with a lane of an instance that nobody else uses meanwhile: there are as many as are in use at the same time.
func (s *lanes) use(instance string, f func(*Lane) error) error {
	s.mu.Lock()
	lane := new(Lane)
	if free := s.free[instance]; len(free) > 0 {
		last := len(free) - 1
		lane, s.free[instance] = free[last], free[:last]
	}
	s.mu.Unlock()
	err := f(lane)
	if err != nil {
		lane.Abandon()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == nil {
		s.free = map[string][]*Lane{}
	}
	s.free[instance] = append(s.free[instance], lane)
	return err
}

// Abandon forgets the request whose outcome is unknown: the next one goes over a new lane.
func (l *Lane) Abandon() { *l = Lane{} }

// request returns the lane's id and the number of the request to send: the same until settled is called.
func (l *Lane) request() (uuid.UUID, string) {
	if l.id == uuid.Nil {
		l.id, l.number = ids.New(), 1
	}
	return l.id, strconv.FormatUint(l.number, 10)
}

// settled is called with each answer, after which the next request is another one.
func (l *Lane) settled() { l.number++ }
