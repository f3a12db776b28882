package store

import (
	"strconv"

	"github.com/google/uuid"
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

// Abandon forgets the request whose outcome is unknown: the next one goes over a new lane.
func (l *Lane) Abandon() { *l = Lane{} }

// request returns the lane's id and the number of the request to send: the same until settled is called.
func (l *Lane) request() (uuid.UUID, string) {
	if l.id == uuid.Nil {
		l.id, l.number = uuid.New(), 1
	}
	return l.id, strconv.FormatUint(l.number, 10)
}

// settled is called with each answer, after which the next request is another one.
func (l *Lane) settled() { l.number++ }
