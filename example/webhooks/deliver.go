package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/worker"
)

// event is the payload of a job.
type event struct {
	URL    string
	Number int
}

// courier follows no redirect: it would ask for the new address with a GET, without the event, and take the answer for that of a delivery.
var courier = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// deliver is the handler: one request, whose answer decides how it goes on.
func deliver(ctx context.Context, e event) error {
	body, err := json.Marshal(map[string]int{"number": e.Number})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(body))
	if err != nil {
		return retry.Permanent(err) // it is no URL
	}
	req.Header.Set("Content-Type", "application/json")
	if j, ok := worker.JobFrom(ctx); ok {
		req.Header.Set("Webhook-Id", j.ID.String()) // by which a receiver knows a second delivery of the same event
	}
	resp, err := courier.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	return judge(resp)
}

// answerError is an answer that is not one of success.
type answerError struct{ code int }

func (e answerError) Error() string {
	return fmt.Sprintf("answered %d %s", e.code, http.StatusText(e.code))
}

// judge turns an answer into what the job does next.
func judge(resp *http.Response) error {
	code := resp.StatusCode
	err := error(answerError{code})
	switch {
	case code < 300:
		return nil
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		if d, ok := retryAfter(resp.Header.Get("Retry-After"), time.Now()); ok {
			return retry.After(d, err)
		}
		return err
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code >= 500:
		return err
	default: // the request is wrong, or the receiver has gone: asking again does not help
		return retry.Permanent(err)
	}
}

// retryAfter reads the header: seconds, or a date. What is over a day is cut to it.
func retryAfter(header string, now time.Time) (time.Duration, bool) {
	const most = 24 * time.Hour
	if n, err := strconv.Atoi(header); err == nil && n >= 0 {
		return time.Duration(min(n, int(most/time.Second))) * time.Second, true
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(at.Sub(now), 0), most), true
	}
	return 0, false
}

// isOutage tells the errors for which the breaker should open: no answer, or one that says that the receiver is broken. One that
// is busy has said itself when to come back.
func isOutage(err error) bool {
	if answer, ok := errors.AsType[answerError](err); ok {
		return answer.code >= 500 && answer.code != http.StatusServiceUnavailable
	}
	return true
}
