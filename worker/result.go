package worker

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// JobError is a job that has no result to give, because it is not done.
type JobError struct {
	ID       uuid.UUID
	Instance string
	State    store.State // Dead or Cancelled; any but Done for a snapshot of a job that has not ended
	Reason   string      // the job's LastError: why it is dead, or how its last attempt failed; may be empty
}

func (e *JobError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("job %s of %s is %s", e.ID, e.Instance, e.State)
	}
	return fmt.Sprintf("job %s of %s is %s: %s", e.ID, e.Instance, e.State, e.Reason)
}

// ResultOf returns what the handler of a done job returned, see [HandleResult]. For a job that is not done the error is a
// *JobError; for a result that is no T it is that of encoding/json. A job whose handler was registered with [Handle] has no
// result, which is an error too, unless T is struct{}.
func ResultOf[T any](j store.Job) (T, error) {
	var out T
	if j.State != store.Done {
		return out, &JobError{ID: j.ID, Instance: j.Instance, State: j.State, Reason: j.LastError}
	}
	if j.Result == nil {
		if _, none := any(out).(struct{}); none {
			return out, nil
		}
		return out, fmt.Errorf("job %s of %s is done without a result", j.ID, j.Instance)
	}
	if err := json.Unmarshal(j.Result, &out); err != nil {
		var zero T
		return zero, fmt.Errorf("the result of job %s of %s: %w", j.ID, j.Instance, err)
	}
	return out, nil
}
