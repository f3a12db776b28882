package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/stint-go/stint/store"
)

// actions are the operations to draw from; what is listed more than once is drawn more often.
func (m *machine) actions() map[string]func(*rapid.T) {
	on := func(f func(*rapid.T, *driven)) func(*rapid.T) {
		return func(t *rapid.T) {
			d := m.all[0]
			if rapid.IntRange(0, 4).Draw(t, "instance") == 4 {
				d = m.all[1]
			}
			f(t, d)
		}
	}
	return map[string]func(*rapid.T){
		"enqueue": on(m.enqueue), "enqueue more": on(m.enqueue),
		"exchange": on(m.exchange), "exchange more": on(m.exchange), "exchange again": on(m.exchange), "exchange still": on(m.exchange),
		"repeat": on(m.repeat), "repeat older": on(m.repeatOlder),
		"heartbeat": on(m.heartbeat),
		"reap":      on(m.reap), "reap more": on(m.reap), "crash": on(m.crash), "crash more": on(m.crash),
		"cancel": on(m.cancel), "requeue": on(m.requeue), "delete": on(m.delete), "await": on(m.await),
		"pause": on(m.pause), "vandalise": on(m.vandalise),
		"sleep": m.sleep, "sleep more": m.sleep,
	}
}

func (m *machine) sleep(t *rapid.T) {
	time.Sleep(rapid.SampledFrom(m.rig.Times.Sleeps).Draw(t, "sleep"))
}

// crash lets leases run out, and ends them: that is what makes suspects.
func (m *machine) crash(t *rapid.T, d *driven) {
	time.Sleep(m.rig.Times.Leases[1] + time.Millisecond)
	m.reap(t, d)
}

func (m *machine) enqueue(t *rapid.T, d *driven) {
	jobs := make([]modelNewJob, rapid.IntRange(1, 5).Draw(t, "jobs"))
	for i := range jobs {
		jobs[i] = m.drawJob(t, d)
		if j := d.model.jobs[jobs[i].ID]; j != nil && j.record == recordDeleted {
			return // accepted it would be twice in the index; only an audit could tell
		}
	}
	for i := range jobs {
		id := jobs[i].ID
		same := func(j modelNewJob) bool { return j.ID == id }
		alone := d.model.jobs[id] == nil && slices.IndexFunc(jobs, same) == i && !slices.ContainsFunc(jobs[i+1:], same)
		jobs[i].Fresh = alone && rapid.Bool().Draw(t, "fresh")
	}
	n := modelLanes + rapid.IntRange(0, modelLanes-1).Draw(t, "lane")
	l := d.lanes[n]
	if !slices.ContainsFunc(jobs, func(j modelNewJob) bool { return !j.bad }) {
		l = &drivenLane{now: l.now, number: l.number} // nothing is sent, and the lane stays as it is
	}
	l.older, l.last, l.jobs = l.last, l.now, jobs
	m.sendJobs(t, d, "enqueue", &l.now, request{n, l.number}, jobs)
	l.number++
}

func (m *machine) sendJobs(t *rapid.T, d *driven, what string, lane *store.Lane, r request, jobs []modelNewJob) {
	m.step(t, d, what, func() string {
		send := make([]store.NewJob, len(jobs))
		for i := range jobs {
			send[i] = jobs[i].NewJob
		}
		errs, err := m.rt.Enqueue(m.ctx, lane, d.model.name, send)
		if err != nil {
			return nameOf(t, err)
		}
		verdicts := make([]string, len(errs))
		for i := range errs {
			verdicts[i] = nameOf(t, errs[i])
		}
		return fmt.Sprint(verdicts)
	}, func(md *model, now int64) string { return md.enqueue(now, r, jobs) })
}

func (m *machine) exchange(t *rapid.T, d *driven) {
	process := rapid.IntRange(0, len(processes)-1).Draw(t, "process")
	lease := rapid.SampledFrom(m.rig.Times.Leases).Draw(t, "lease for")
	x := &drawnExchange{terms: m.terms(d, lease, process), model: modelExchange{process: processes[process], lease: lease}}
	finishing := map[uuid.UUID]bool{}
	for range rapid.IntRange(0, 4).Draw(t, "finishes") {
		l, ok := d.drawLease(t)
		if !ok || finishing[l.Worker()] {
			continue
		}
		finishing[l.Worker()] = true
		f, mf := m.drawFinish(t, l)
		x.sent.Finishes, x.model.finishes = append(x.sent.Finishes, f), append(x.model.finishes, mf)
	}
	for _, w := range d.workers {
		if rapid.IntRange(0, 2).Draw(t, short(w)+" claims") > 0 {
			x.sent.Claims = append(x.sent.Claims, w)
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "no claims") == 4 {
		x.sent.Claims = nil
	}
	x.sent.NoSuspects = rapid.IntRange(0, 3).Draw(t, "no suspects") == 3
	x.model.claims, x.model.calm = x.sent.Claims, x.sent.NoSuspects
	x.sent.Wait = rapid.Bool().Draw(t, "wait")
	n := rapid.IntRange(0, modelLanes-1).Draw(t, "lane")
	l := d.lanes[n]
	l.older, l.last, l.exchange = l.last, l.now, x
	lost := rapid.IntRange(0, 3).Draw(t, "reply") == 3
	m.sendExchange(t, d, "exchange", &l.now, request{n, l.number}, x, lost)
	l.number++
	if lost && rapid.Bool().Draw(t, "repeat at once") {
		again := l.last
		m.sendExchange(t, d, "exchange, repeated", &again, request{n, l.number - 1}, x, false)
	}
}

// sendExchange makes the call; when its reply is lost the caller does not learn of the leases.
func (m *machine) sendExchange(t *rapid.T, d *driven, what string, lane *store.Lane, r request, x *drawnExchange, lost bool) {
	var reply store.Exchanged
	m.step(t, d, what, func() string {
		var err error
		if reply, err = m.rt.Exchange(m.ctx, lane, x.terms, x.sent); err != nil {
			return nameOf(t, err)
		}
		ended := make([]string, len(reply.Ended))
		for i, s := range reply.Ended {
			if ended[i] = string(s); s == "" {
				ended[i] = "lost"
			}
		}
		leases := make([]string, len(reply.Leases))
		for i, l := range reply.Leases {
			leases[i] = describeLease(l.Job, l.Broken != nil)
		}
		return describeExchanged(ended, leases, shorts(reply.Expired), reply.Suspects, max(-1, reply.Next.Milliseconds()), reply.Trimmed)
	}, func(md *model, now int64) string { return md.exchange(now, r, x.model, reply) })
	if !lost {
		d.learn(reply.Leases)
	}
}

// learn remembers leases that the store handed out, the latest 30 of them.
func (d *driven) learn(leases []*store.Lease) {
	for _, l := range leases {
		d.leases = append(d.leases, knownLease{l, d.model.held[l.Worker()].claim})
	}
	d.leases = d.leases[max(0, len(d.leases)-30):]
}

// repeat sends the last request of a lane again, whatever has happened meanwhile.
func (m *machine) repeat(t *rapid.T, d *driven) {
	n := rapid.IntRange(0, len(d.lanes)-1).Draw(t, "lane")
	l := d.lanes[n]
	again := l.last
	m.resend(t, d, "repeated", &again, request{n, l.number - 1})
}

// repeatOlder sends something over a lane with a number that it is past.
func (m *machine) repeatOlder(t *rapid.T, d *driven) {
	n := rapid.IntRange(0, len(d.lanes)-1).Draw(t, "lane")
	l := d.lanes[n]
	if l.number < 4 {
		t.Skip("the lane has not been used twice")
	}
	again := l.older
	m.resend(t, d, "sent late", &again, request{n, l.number - 2})
}

func (m *machine) resend(t *rapid.T, d *driven, how string, lane *store.Lane, r request) {
	switch l := d.lanes[r.lane]; {
	case l.exchange != nil:
		m.sendExchange(t, d, "exchange, "+how, lane, r, l.exchange, false)
	case l.jobs != nil:
		for _, n := range l.jobs {
			if j := d.model.jobs[n.ID]; j != nil && j.record == recordDeleted {
				return
			}
		}
		m.sendJobs(t, d, "enqueue, "+how, lane, r, l.jobs)
	default:
		t.Skip("the lane has not been used")
	}
}

func (m *machine) heartbeat(t *rapid.T, d *driven) {
	lease := rapid.SampledFrom(m.rig.Times.Leases).Draw(t, "lease for")
	var beats []store.Beat
	var known []modelFinish
	for range rapid.IntRange(0, 4).Draw(t, "beats") {
		if l, ok := d.drawLease(t); ok {
			report := rapid.SampledFrom([]string{"", "3", "4"}).Draw(t, "progress")
			beats = append(beats, store.Beat{Lease: l.Lease, Progress: raw(report)})
			known = append(known, modelFinish{claim: l.claim, worker: l.Worker(), progress: report})
		}
	}
	var others []uuid.UUID
	for _, w := range d.workers {
		if rapid.IntRange(0, 3).Draw(t, short(w)+" holds nothing") == 3 {
			others = append(others, w)
		}
	}
	var found []*store.Lease
	m.step(t, d, "heartbeat", func() string {
		verdicts, leases, err := m.rt.Heartbeat(m.ctx, m.terms(d, lease, 0), beats, others)
		if err != nil {
			return nameOf(t, err)
		}
		words := make([]string, len(verdicts))
		for i, v := range verdicts {
			words[i] = map[store.Verdict]string{store.Held: "held", store.Lost: "lost", store.CancelRequested: "cancel"}[v]
		}
		found = leases
		texts := make([]string, len(leases))
		for i, l := range leases {
			texts[i] = describeLease(l.Job, l.Broken != nil)
		}
		return describeBeats(words, texts)
	}, func(md *model, now int64) string { return md.heartbeat(now, lease, known, others) })
	d.learn(found)
}

func (m *machine) reap(t *rapid.T, d *driven) {
	m.step(t, d, "reap", func() string {
		got, err := m.rt.Reap(m.ctx, m.terms(d, 24*time.Hour, 0))
		if err != nil {
			return nameOf(t, err)
		}
		reaped := make([]string, len(got.Reaped))
		for i, r := range got.Reaped {
			reaped[i] = describeReaped(r)
		}
		return describeMaintained(reaped, shorts(got.Expired), got.Trimmed, max(-1, got.Next.Milliseconds()), got.Missing)
	}, func(md *model, now int64) string { return md.reap(now) })
}

// admin does something to one job.
func (m *machine) admin(t *rapid.T, d *driven, what string, id uuid.UUID, call func(uuid.UUID) error, expect func(*model, int64, uuid.UUID) string) {
	m.step(t, d, what+" "+short(id), func() string { return nameOf(t, call(id)) },
		func(md *model, now int64) string { return expect(md, now, id) })
}

func (m *machine) cancel(t *rapid.T, d *driven) {
	m.admin(t, d, "cancel", d.drawID(t, doing), func(id uuid.UUID) error { return m.rig.Store.Cancel(m.ctx, id) }, (*model).cancel)
}

func (m *machine) requeue(t *rapid.T, d *driven) {
	m.admin(t, d, "requeue", d.drawID(t, ended), func(id uuid.UUID) error { return m.rig.Store.Requeue(m.ctx, id, store.RequeueMode{}) }, (*model).requeue)
}

func (m *machine) delete(t *rapid.T, d *driven) {
	m.admin(t, d, "delete", d.drawID(t, ended), func(id uuid.UUID) error { return m.rig.Store.Delete(m.ctx, id) },
		func(md *model, _ int64, id uuid.UUID) string { return md.delete(id) })
}

func (m *machine) await(t *rapid.T, d *driven) {
	id := d.drawID(t, living)
	m.step(t, d, "await "+short(id), func() string {
		state, err := m.rt.Await(m.ctx, d.model.name, id)
		if err != nil {
			return nameOf(t, err)
		}
		return string(state)
	}, func(md *model, now int64) string { return md.await(now, id) })
}

// pause pauses, more rarely than it resumes.
func (m *machine) pause(t *rapid.T, d *driven) {
	on := !d.model.paused && rapid.IntRange(0, 3).Draw(t, "pause") == 3
	m.step(t, d, fmt.Sprintf("pause %v", on), func() string {
		if on {
			return nameOf(t, m.rig.Store.Pause(m.ctx, d.model.name))
		}
		return nameOf(t, m.rig.Store.Resume(m.ctx, d.model.name))
	}, func(md *model, _ int64) string { md.paused = on; return "ok" })
}

// vandalise deletes a record, or makes it unreadable, behind the store's back.
func (m *machine) vandalise(t *rapid.T, d *driven) {
	id := d.drawID(t, living)
	j := d.model.known(id)
	if j == nil || j.record != recordIntact {
		t.Skip("no such record")
	}
	if j.attempt == 1 && j.crashes == 0 {
		t.Skip("the record may tell of its first run: see aFirstRunWhoseRecordIsSpoiltEnds")
	}
	to, what := recordDeleted, "delete the record of "
	if rapid.Bool().Draw(t, "unreadable") {
		to, what = recordUnreadable, "scribble over the record of "
	}
	key := m.rig.Prefix + ":{" + d.model.name + "}:jobs"
	m.step(t, d, what+short(id), func() string {
		if to == recordDeleted {
			return nameOf(t, m.rig.Client.HDel(m.ctx, key, string(id[:])).Err())
		}
		return nameOf(t, m.rig.Client.HSet(m.ctx, key, string(id[:]), "x").Err())
	}, func(md *model, _ int64) string { md.jobs[id].record = to; return "ok" })
}
