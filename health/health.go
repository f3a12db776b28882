// Package health answers those who ask whether a process is alive, and whether it is ready, such as Kubernetes' probes.
//
//	http.Handle("/healthz", health.Live(sup))
//	http.Handle("/readyz", health.Ready(sup))
package health

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stint-go/stint/worker"
)

// Stuck is for how long a loop may be at one pass before its process is not alive any more: far longer than the Redis client's
// own timeouts and repetitions take, since a process must not be restarted because Redis is away.
const Stuck = 5 * time.Minute

// Live answers 200 while the loops of the supervisors turn, outages of Redis or not, and 503 with a line for each that does not:
// one of its loops has been at one pass for more than five minutes, or its Run has returned, as it does at once when a registration was wrong.
// Before Run a supervisor is alive. It does no I/O.
func Live(sups ...*worker.Supervisor) http.Handler {
	return handler(sups, func(st worker.Status) string {
		switch {
		case st.Phase == worker.Stopped:
			return "it has stopped"
		case st.Behind > Stuck:
			return fmt.Sprintf("its loop %q has not turned for %v", st.Loop, st.Behind.Round(time.Second))
		}
		return ""
	})
}

// Ready answers 200 while all the supervisors claim jobs: they run, reach Redis and are not draining; otherwise 503 with a line for
// each that does not. It does no I/O: that Redis can't be reached is known within some seconds, that a connection has died in silence
// within some 10.
func Ready(sups ...*worker.Supervisor) http.Handler {
	return handler(sups, func(st worker.Status) string {
		switch {
		case st.Phase != worker.Running:
			return "it is " + string(st.Phase)
		case !st.Reachable:
			return "it can't reach Redis"
		}
		return ""
	})
}

// handler serves what is wrong, nothing where all is well.
func handler(sups []*worker.Supervisor, wrong func(worker.Status) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var problems strings.Builder
		for i, s := range sups {
			what := "it is nil"
			if s != nil {
				what = wrong(s.Status())
			}
			if what != "" {
				fmt.Fprintf(&problems, "supervisor %d: %s\n", i+1, what)
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if problems.Len() > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(problems.String()))
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
}
