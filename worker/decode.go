package worker

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
)

// decode makes what a handler takes of a payload.
func decode[In any](job store.Job) (in In, err error) {
	switch p := any(&in).(type) {
	case *struct{}:
		return in, nil
	case *json.RawMessage:
		*p = job.Payload
		return in, nil
	}
	if err := json.Unmarshal(job.Payload, &in); err != nil {
		field, want := unfit(job.Payload, reflect.TypeFor[In](), err)
		return in, retry.Permanent(&DecodeError{Instance: job.Instance, Field: field, Want: want, Err: err})
	}
	return in, nil
}

// decodeKept is json.Unmarshal of what a step has kept. What it returns is an ErrStepChanged.
func decodeKept(text []byte, what string, out any) error {
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%w: %s: %s", ErrStepChanged, what, misfit(unfit(text, reflect.TypeOf(out).Elem(), err)))
	}
	return nil
}

// misfit says that a text does not fit a type. The text itself may be secret, and what is said here stays with the job, for all to read: so
// nothing of it may be quoted, as the errors of encoding/json do, and of types that decode themselves.
func misfit(field, want string) string {
	want = cmp.Or(want, "what it should be")
	if field == "" {
		return "it is no " + want
	}
	return fmt.Sprintf("field %q is no %s", field, want)
}

// unfit finds what of a text does not fit a type, by the error with which it did not decode: the field, "" for the whole, and the type that
// this should be.
func unfit(text []byte, t reflect.Type, err error) (field, want string) {
	if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && te.Field != "" {
		return te.Field, te.Type.String()
	}
	field, of := culprit(text, t)
	return field, of.String()
}

// culprit finds the field that does not decode, and its type, for types that decode themselves and say nothing of where they stand: "" if it
// is none of a struct's.
func culprit(text []byte, t reflect.Type) (string, reflect.Type) {
	whole := t
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var parts map[string]json.RawMessage
	if t.Kind() != reflect.Struct || json.Unmarshal(text, &parts) != nil {
		return "", whole
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		name = cmp.Or(name, f.Name)
		for part, text := range parts {
			if f.IsExported() && strings.EqualFold(part, name) && json.Unmarshal(text, reflect.New(f.Type).Interface()) != nil {
				inner, of := culprit(text, f.Type)
				if inner != "" {
					name += "." + inner
				}
				return name, of
			}
		}
	}
	return "", whole
}
