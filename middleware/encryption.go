package middleware

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

// KeyID is the key of the metadata that names the key which a job's payload and result are encrypted with.
const KeyID = "stint-key-id"

// ErrKey: a payload or a result can't be decrypted: its key is not among the keys, or is another one under the same name, or not the one that the
// metadata name, or what was encrypted has been changed. The text says which, and names the key.
var ErrKey = errors.New("decrypting")

// Keys encrypts the payloads and results of jobs, and what their steps keep, with AES-GCM, so that Redis never holds them in the clear. Both
// sides need it:
//
//	keys, err := middleware.NewKeys("2027-01", map[string][]byte{"2027-01": key, "2026-07": former})
//	client := worker.NewClient(st, worker.ClientConfig{Hooks: []worker.EnqueueHook{keys.Encrypt}})      // the last hook
//	sup, err := worker.New(st, worker.Config{
//		Middleware: []worker.Middleware{keys.Decrypt},
//		Hooks:      []worker.EnqueueHook{keys.Encrypt}, // for children
//	})
//	job, err := client.Wait(ctx, id); job, err = keys.Open(job)                                          // to read a result
//
// To rotate: add the new key to all processes, then make it the current one, and remove the former one when the jobs that
// were encrypted with it are gone. A job whose key is not known, or does not fit, is dead with a reason that names the key.
//
// A child is encrypted with the key that is current when it is dispatched, whatever that of its parent is; Future.Wait returns its result in
// the clear. The results of the steps of a job that is encrypted, and the positions of its cursors, are encrypted with the key of its payload.
//
// What is encrypted is bound to its place: a payload to its instance, a result to its job, and what a step keeps to its job and its name. Who
// can write to Redis, but has no key, can't read it, change it, or have it taken for what belongs elsewhere. But payloads of one instance can be
// exchanged for each other, or used again, unnoticed: a payload is encrypted before its job has an id. And a job without a key in
// its metadata is passed on as it is, with its result and its steps, so that encryption can be introduced under way: once all jobs of an
// instance are encrypted, put Require in the place of Decrypt there. The result of a child, which may be of an instance without encryption, or
// none at all, is taken as it is where it is in the clear, under Require too: who can write to Redis can put another one in its place. Encrypted
// JSON is a third longer than plain.
//
// Nonces are drawn, of 96 bits: a key is good for 2^32 texts, which are payloads, results, and what steps keep. At 1,000 texts a second rotate
// each month, at 10 a second each ten years.
//
// Not encrypted are metadata, progress, errors (also those of steps and children; a worker.DecodeError quotes nothing of the payload), names of
// steps and uniqueness keys. Nor are the jobs of
// cron: their payload is what was declared, the same in all processes, which encryption would make another in each. Put into it what
// tells the handler where the secret is, or make the handler enqueue a job, or a child, with the secret in it.
type Keys struct {
	current string
	ciphers map[string]cipher.AEAD
}

// NewKeys makes Keys of 16, 24 or 32 bytes each, by their names, which are not secret. What is enqueued is encrypted with the current
// one.
func NewKeys(current string, keys map[string][]byte) (*Keys, error) {
	k := &Keys{current: current, ciphers: map[string]cipher.AEAD{}}
	for id, key := range keys {
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("%w: key %q has %d bytes; 16, 24 or 32 are allowed", store.ErrInvalid, id, len(key))
		}
		if !utf8.ValidString(id) {
			return nil, fmt.Errorf("%w: the name of key %q is not UTF-8", store.ErrInvalid, id)
		}
		if k.ciphers[id], err = cipher.NewGCM(block); err != nil {
			return nil, fmt.Errorf("%w: key %q: %w", store.ErrInvalid, id, err)
		}
	}
	if k.ciphers[current] == nil || current == "" {
		return nil, fmt.Errorf("%w: the current key %q is not among the keys", store.ErrInvalid, current)
	}
	return k, nil
}

// Encrypt is the hook that encrypts the payload of each job with the current key. Hooks after it see what is encrypted; none may send
// it to another instance.
func (k *Keys) Encrypt(_ context.Context, r *worker.Request) error {
	raw, ok := r.Payload.(json.RawMessage)
	if !ok || raw == nil {
		var err error
		if raw, err = json.Marshal(r.Payload); err != nil {
			return fmt.Errorf("%w: the payload: %w", store.ErrInvalid, err)
		}
	} else if !json.Valid(raw) {
		return fmt.Errorf("%w: the payload is not JSON", store.ErrInvalid) // a child's is its parent's LastError then
	}
	r.Payload = k.seal(k.current, raw, payloadOf(r.Instance))
	r.Options = append(r.Options, worker.Metadata(KeyID, k.current))
	return nil
}

// Decrypt is the middleware that gives the handler the payload in the clear, and encrypts its result with the key of the payload. The
// job of worker.JobFrom stays as it is in the store.
func (k *Keys) Decrypt(next worker.Handler) worker.Handler {
	return func(ctx context.Context, job store.Job) error {
		payload, id, encrypted, err := k.openPayload(job)
		if err != nil {
			return retry.Permanent(fmt.Errorf("%w the payload: %w", ErrKey, err))
		}
		job.Payload = payload
		if !encrypted {
			_ = worker.EditSteps(ctx, asItIs, k.read(false)) // its children may be; outside of a supervisor it has none
			return next(ctx, job)
		}
		if err := worker.EditSteps(ctx, k.keep(id), k.read(true)); err != nil {
			return retry.Permanent(fmt.Errorf("encrypting steps: %w", err))
		}
		if err := next(ctx, job); err != nil {
			return err
		}
		err = worker.EditResult(ctx, func(result json.RawMessage) (json.RawMessage, error) {
			if result == nil {
				return nil, nil
			}
			return k.seal(id, result, resultOf(job)), nil
		})
		if err != nil { // its work is done: to do it again would not help, and the result must not be kept in the clear
			return retry.Permanent(fmt.Errorf("encrypting the result: %w", err))
		}
		return nil
	}
}

// Require is Decrypt where all jobs are encrypted: one that is not is dead. The jobs of cron never are. Results of children may be in the clear:
// see Keys.
func (k *Keys) Require(next worker.Handler) worker.Handler {
	decrypt := k.Decrypt(next)
	return func(ctx context.Context, job store.Job) error {
		if _, encrypted := job.Metadata[KeyID]; !encrypted {
			return retry.Permanent(fmt.Errorf("%w the payload: the metadata name no key, and only what is encrypted is taken here", ErrKey))
		}
		return decrypt(ctx, job)
	}
}

// openPayload returns the payload of a job in the clear, and the name of its key, if it is encrypted. On that its metadata and its payload have
// to agree: the metadata are not encrypted, and who changed them could have the result kept in the clear.
func (k *Keys) openPayload(job store.Job) (text json.RawMessage, id string, encrypted bool, err error) {
	id, encrypted = job.Metadata[KeyID]
	of, sealed, ok := unpack(job.Payload)
	switch {
	case !encrypted && !ok:
		return job.Payload, "", false, nil
	case !encrypted:
		err = fmt.Errorf("it was encrypted with key %q, and the metadata name none", of)
	case ok && of != id:
		err = fmt.Errorf("it was encrypted with key %q, and the metadata name %q", of, id)
	default:
		text, err = k.open(of, sealed, ok, payloadOf(job.Instance))
	}
	return text, id, true, err
}

// Open returns a job with its payload and its result in the clear, to be read with worker.ResultOf. A job that is not encrypted is
// returned as it is. An error is an ErrKey.
func (k *Keys) Open(job store.Job) (store.Job, error) {
	payload, _, encrypted, err := k.openPayload(job)
	if err != nil {
		return job, fmt.Errorf("%w the payload of job %s: %w", ErrKey, job.ID, err)
	}
	if encrypted && job.Result != nil {
		id, sealed, ok := unpack(job.Result)
		result, err := k.open(id, sealed, ok, resultOf(job))
		if err != nil {
			return job, fmt.Errorf("%w the result of job %s: %w", ErrKey, job.ID, err)
		}
		job.Result = result
	}
	job.Payload = payload
	return job, nil
}

// keep encrypts what a step keeps.
func (k *Keys) keep(id string) func(store.Step) (json.RawMessage, error) {
	return func(s store.Step) (json.RawMessage, error) { return k.seal(id, s.Result, stepOf(s)), nil }
}

func asItIs(s store.Step) (json.RawMessage, error) { return s.Result, nil }

// read decrypts what a step has kept, of a job that is encrypted or not, and the result of a child, which may be so or not.
func (k *Keys) read(encrypted bool) func(store.Step) (json.RawMessage, error) {
	return func(s store.Step) (json.RawMessage, error) {
		id, sealed, ok := unpack(s.Result)
		what, closed := stepOf(s), encrypted
		if s.Kind == store.AsyncStep {
			what, closed = resultOf(store.Job{ID: s.Child, Instance: s.Instance}), ok
		}
		if !closed {
			return s.Result, nil
		}
		text, err := k.open(id, sealed, ok, what)
		if err != nil {
			return nil, retry.Permanent(fmt.Errorf("%w the result: %w", ErrKey, err))
		}
		return text, nil
	}
}

// payloadOf, resultOf and stepOf say what a text is, in words that it is bound to.
func payloadOf(instance string) string { return "payload of " + instance }
func resultOf(job store.Job) string    { return "result of " + job.ID.String() + " of " + job.Instance }
func stepOf(s store.Step) string       { return "step " + s.Name + " of " + s.Job.String() }

// mark is how an encrypted text begins; the name of its key comes next, and then, after a colon, the nonce and the text.
const mark = "stint-sealed:"

// seal returns a JSON string.
func (k *Keys) seal(id string, text json.RawMessage, what string) json.RawMessage {
	aead := k.ciphers[id]
	sealed := make([]byte, aead.NonceSize(), aead.NonceSize()+len(text)+aead.Overhead())
	_, _ = rand.Read(sealed) // it never fails
	sealed = aead.Seal(sealed, sealed, text, []byte(what))
	quoted, _ := json.Marshal(mark + id + ":" + base64.StdEncoding.EncodeToString(sealed)) // a string always can be
	return quoted
}

// unpack returns what seal has packed, and the name of the key; false if it has not.
func unpack(quoted json.RawMessage) (id string, sealed []byte, ok bool) {
	if !bytes.HasPrefix(bytes.TrimLeft(quoted, " \t\r\n"), []byte{'"'}) { // nor does it have to be read
		return "", nil, false
	}
	var packed string
	if json.Unmarshal(quoted, &packed) != nil || !strings.HasPrefix(packed, mark) {
		return "", nil, false
	}
	colon := strings.LastIndexByte(packed, ':')
	if colon < len(mark) {
		return "", nil, false
	}
	sealed, err := base64.StdEncoding.DecodeString(packed[colon+1:])
	return packed[len(mark):colon], sealed, err == nil
}

// open decrypts what unpack has returned.
func (k *Keys) open(id string, sealed []byte, ok bool, what string) (json.RawMessage, error) {
	aead := k.ciphers[id]
	switch {
	case !ok:
		return nil, errors.New("it is not encrypted")
	case aead == nil:
		return nil, fmt.Errorf("key %q is not among the keys of this process", id)
	case len(sealed) < aead.NonceSize():
		return nil, fmt.Errorf("it is not what key %q makes", id)
	}
	text, err := aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], []byte(what))
	if err != nil {
		return nil, fmt.Errorf("it was not encrypted with the key that is %q here, or was changed since", id)
	}
	return text, nil
}
