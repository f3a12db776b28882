package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/retry"
)

func TestEveryEventIsDeliveredOrDeadWhateverTheReceiverDoes(t *testing.T) {
	well, ill := steady{}, &shaky{}
	a, b := listen(well), listen(ill)
	defer a.Close()
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	reports, err := run(ctx, map[string]string{"steady": a.URL, "shaky": b.URL}, 50, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if r := *reports["webhooks/steady"]; r.Delivered != 50 || r.Attempts != 50 || r.Opened != 0 {
		t.Errorf("the one that is well: %+v", r)
	}
	r := *reports["webhooks/shaky"]
	if r.Delivered != 45 || r.Dead != 5 || r.Opened == 0 {
		t.Errorf("the one that is not: %+v", r)
	}
	ill.mu.Lock()
	defer ill.mu.Unlock()
	if ill.early != 0 {
		t.Errorf("%d came back before they were asked to", ill.early)
	}
	if ill.aborted != downFor || r.Attempts != ill.requests {
		t.Errorf("%d requests without an answer, %d in all for %d attempts", ill.aborted, ill.requests, r.Attempts)
	}
	twice := 0
	for _, n := range ill.taken {
		if n > 2 {
			t.Errorf("an event was taken %d times", n)
		}
		twice += n - 1
	}
	if len(ill.taken) != 45 || twice != 5 {
		t.Errorf("%d events were taken, %d of them twice; want 45 and 5, known by their keys", len(ill.taken), twice)
	}
	if !strings.Contains(out.String(), "webhooks/shaky: the breaker is open") || !strings.Contains(out.String(), "webhooks/shaky: the breaker is closed") {
		t.Errorf("it says\n%s", &out)
	}
}

func TestAnswersSteer(t *testing.T) {
	for _, c := range []struct {
		code      int
		after     string
		well      bool
		permanent bool
		delay     time.Duration // 0: the policy's
		outage    bool
	}{
		{204, "", true, false, 0, false},
		{429, "7", false, false, 7 * time.Second, false},
		{429, "", false, false, 0, false},
		{503, "60", false, false, time.Minute, false},
		{503, "soon", false, false, 0, false},
		{429, "99999999", false, false, 24 * time.Hour, false},
		{500, "", false, false, 0, true},
		{408, "", false, false, 0, false},
		{400, "", false, true, 0, false},
		{410, "5", false, true, 0, false},
		{301, "", false, true, 0, false},
	} {
		err := judge(&http.Response{StatusCode: c.code, Header: http.Header{"Retry-After": {c.after}}})
		d, _ := retry.Delay(err)
		if (err == nil) != c.well || retry.IsPermanent(err) != c.permanent || d != c.delay || err != nil && isOutage(err) != c.outage {
			t.Errorf("%d with %q: %v, permanent %v, after %v", c.code, c.after, err, retry.IsPermanent(err), d)
		}
	}
	if !isOutage(errors.New("EOF")) {
		t.Error("no answer is no outage")
	}
	now := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	if d, ok := retryAfter(now.Add(time.Minute).Format(http.TimeFormat), now); !ok || d != time.Minute {
		t.Errorf("a date: %v, %v", d, ok)
	}
}

func TestARedirectBuriesTheEventAndIsNotFollowed(t *testing.T) {
	for _, location := range []string{"/new", ""} {
		r := listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || r.URL.Path != "/old" {
				t.Errorf("it is asked to %s %s", r.Method, r.URL)
				return
			}
			if location != "" {
				w.Header().Set("Location", location)
			}
			w.WriteHeader(http.StatusMovedPermanently)
		}))
		defer r.Close()
		if err := deliver(t.Context(), event{URL: r.URL + "/old"}); !retry.IsPermanent(err) {
			t.Errorf("to %q: %v, want a permanent error", location, err)
		}
	}
}
