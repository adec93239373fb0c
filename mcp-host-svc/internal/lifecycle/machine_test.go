package lifecycle_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/writ-dev/writ/mcp-host-svc/internal/lifecycle"
)

var config = lifecycle.Config{
	Idle: 300 * time.Second, BackoffFirst: time.Second, BackoffMost: 30 * time.Second, Steady: 10 * time.Second,
}

var start = time.Unix(1_800_000_000, 0)

// world is a model of what the owner of the machine sees; it checks after every
// event that no rule was broken.
type world struct {
	t        *rapid.T
	m        *lifecycle.Machine
	now      time.Time
	next     lifecycle.ID
	process  bool   // a process exists, be it starting, up or on its way out
	ready    bool   // its session is open
	stopping bool   // it was told to end
	folder   string // what the process was told
	read     bool   // it has read that
	waiting  []lifecycle.Use
	running  []lifecycle.Use
	lastEnd  time.Time
	failures int
	earliest time.Time
	upSince  time.Time
	closed   bool
	retired  bool
}

func (w *world) apply(actions []lifecycle.Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case lifecycle.Start:
			w.check(!w.process, "a second process was started")
			w.check(!w.closed, "a process was started after the end")
			w.check(len(w.waiting) > 0, "a process was started that nobody needs (R60)")
			w.check(!w.now.Before(w.earliest), "a process was started during the backoff")
			w.process, w.folder, w.read, w.ready, w.stopping = true, a.Folder, false, false, false
		case lifecycle.Stop:
			w.check(w.process && !w.stopping, "a process was stopped that is not there")
			w.stopRule(a.Reason)
			w.stopping = true
		case lifecycle.SetFolder:
			w.check(w.ready && !w.stopping && len(w.running) == 0, "the folder changed under a call (R68)")
			w.check(!w.read, "a server that read its roots was not restarted (R69)")
			w.folder = a.Folder
		case lifecycle.Grant:
			w.grant(a.ID)
		case lifecycle.Fail:
			w.check(a.Err != nil, "a use failed without a reason")
			w.remove(&w.waiting, a.ID, "a use failed that did not wait")
		}
	}
	w.check(w.m.Running() == len(w.running) && w.m.Waiting() == len(w.waiting), "uses got lost")
	if w.closed && !w.process {
		w.check(len(w.waiting) == 0, "something waits for ever after the end")
	}
}

func (w *world) stopRule(why lifecycle.StopReason) {
	switch why {
	case lifecycle.StopIdle:
		w.check(len(w.running) == 0, "a call in flight was swept (R61)")
		w.check(w.now.Sub(w.lastEnd) >= config.Idle, "swept too early (R61)")
	case lifecycle.StopClosed:
		w.check(!w.retired || len(w.running) == 0, "a call in flight was ended by a change of its server")
	case lifecycle.StopFolder:
		w.check(len(w.running) == 0 && w.read, "restarted for a folder without need (R69)")
	}
}

func (w *world) grant(id lifecycle.ID) {
	w.check(w.ready && !w.stopping, "a use was let through without a session")
	w.check(len(w.waiting) > 0 && w.waiting[0].ID == id, "a use overtook another (R68)")
	u := w.waiting[0]
	w.check(u.AnyFolder || u.Folder == w.folder, "a use got another folder")
	w.waiting = w.waiting[1:]
	w.running = append(w.running, u)
}

func (w *world) remove(list *[]lifecycle.Use, id lifecycle.ID, complaint string) {
	i := slices.IndexFunc(*list, func(u lifecycle.Use) bool { return u.ID == id })
	w.check(i >= 0, complaint)
	*list = slices.Delete(*list, i, i+1)
}

func (w *world) check(ok bool, complaint string) {
	if !ok {
		w.t.Fatalf("%s: %+v", complaint, *w)
	}
}

func (w *world) backoff() {
	w.failures++
	wait := time.Duration(0)
	if w.failures > 1 {
		wait = min(config.BackoffFirst<<min(w.failures-2, 16), config.BackoffMost)
	}
	w.earliest = w.now.Add(wait)
}

// The machine never breaks a rule of R57, R60, R61, R68, R69, whatever happens
// in whatever order, and in the end nothing is left.
func TestMachineKeepsItsRules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: rt, m: lifecycle.New(config), now: start}
		rt.Repeat(map[string]func(*rapid.T){
			"arrive":     w.arrive,
			"withdraw":   w.withdraw,
			"finish":     w.finish,
			"started":    w.started,
			"startFails": w.startFails,
			"rootsRead":  w.rootsRead,
			"dies":       w.dies,
			"stopped":    w.stopped,
			"time":       w.passes,
			"stopNow":    w.stopNow,
			"close":      w.close,
			"retire":     w.retire,
		})
		w.drain()
	})
}

func (w *world) arrive(t *rapid.T) {
	w.next++
	u := lifecycle.Use{ID: w.next, Folder: rapid.SampledFrom([]string{"", "/a", "/b"}).Draw(t, "folder")}
	if rapid.IntRange(0, 4).Draw(t, "listing") == 0 {
		u = lifecycle.Use{ID: w.next, AnyFolder: true}
	}
	w.waiting = append(w.waiting, u)
	w.apply(w.m.Arrive(u, w.now))
}

func (w *world) withdraw(t *rapid.T) {
	if len(w.waiting) == 0 {
		return
	}
	u := rapid.SampledFrom(w.waiting).Draw(t, "use")
	w.remove(&w.waiting, u.ID, "model")
	w.apply(w.m.Withdraw(u.ID, w.now))
}

func (w *world) finish(t *rapid.T) {
	if len(w.running) == 0 {
		return
	}
	u := rapid.SampledFrom(w.running).Draw(t, "use")
	w.remove(&w.running, u.ID, "model")
	if len(w.running) == 0 {
		w.lastEnd = w.now
	}
	w.apply(w.m.Finished(u.ID, w.now))
}

func (w *world) started(*rapid.T) {
	if !w.process || w.ready {
		return
	}
	if w.stopping { // the owner ends it instead
		return
	}
	w.ready, w.upSince, w.lastEnd = true, w.now, w.now
	w.apply(w.m.Started(w.now))
}

func (w *world) startFails(*rapid.T) {
	if !w.process || w.ready {
		return
	}
	if !w.stopping {
		w.backoff()
	}
	w.process, w.stopping = false, false
	w.apply(w.m.StartFailed(errors.New("no"), w.now))
}

func (w *world) rootsRead(*rapid.T) {
	if w.process && !w.stopping {
		w.read = true
	}
	w.m.RootsRead()
}

func (w *world) dies(*rapid.T) {
	if !w.ready || w.stopping {
		return
	}
	if w.now.Sub(w.upSince) >= config.Steady {
		w.failures = 0
	}
	w.backoff()
	w.apply(w.m.Died(w.now))
}

func (w *world) stopped(*rapid.T) {
	if !w.stopping {
		return
	}
	w.process, w.ready, w.stopping, w.read = false, false, false, false
	w.apply(w.m.Stopped(w.now))
}

func (w *world) passes(t *rapid.T) {
	w.now = w.now.Add(time.Duration(rapid.IntRange(0, 400_000).Draw(t, "ms")) * time.Millisecond)
	w.apply(w.m.Tick(w.now))
}

func (w *world) stopNow(*rapid.T) {
	w.failures, w.earliest, w.retired = 0, time.Time{}, false
	w.apply(w.m.StopNow(w.now))
}

func (w *world) close(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "really") > 0 {
		return
	}
	w.closed, w.retired = true, false
	w.apply(w.m.Close(errors.New("removed"), w.now))
}

func (w *world) retire(t *rapid.T) {
	if w.closed || rapid.IntRange(0, 9).Draw(t, "really") > 0 {
		return
	}
	w.closed, w.retired = true, true
	w.apply(w.m.Retire(errors.New("changed"), w.now))
}

// drain lets everything that began come to its end: every use is then served or
// failed, and no process is left.
func (w *world) drain() {
	for range 10_000 {
		switch {
		case w.stopping:
			w.stopped(nil)
		case w.process && !w.ready:
			w.started(nil)
		case len(w.running) > 0:
			u := w.running[0]
			w.remove(&w.running, u.ID, "model")
			if len(w.running) == 0 {
				w.lastEnd = w.now
			}
			w.apply(w.m.Finished(u.ID, w.now))
		case len(w.waiting) > 0:
			wake := w.m.Wake()
			w.check(!wake.IsZero(), "something waits and nothing will happen")
			if w.now.Before(wake) {
				w.now = wake
			}
			w.apply(w.m.Tick(w.now))
		case w.process:
			w.now = w.now.Add(config.Idle)
			w.apply(w.m.Tick(w.now))
		default:
			return
		}
	}
	w.t.Fatal("it never comes to rest")
}

// R61 in the numbers of the requirement: 299 s alive, 301 s closed, 0 never.
func TestIdleSweep(t *testing.T) {
	for _, c := range []struct {
		idle, after time.Duration
		busy        bool
		swept       bool
	}{
		{300 * time.Second, 299 * time.Second, false, false},
		{300 * time.Second, 301 * time.Second, false, true},
		{300 * time.Second, 1000 * time.Hour, true, false},
		{0, 1000 * time.Hour, false, false},
	} {
		cfg := config
		cfg.Idle = c.idle
		m := lifecycle.New(cfg)
		m.Arrive(lifecycle.Use{ID: 1}, start)
		m.Started(start)
		if !c.busy {
			m.Finished(1, start)
		}
		got := fmt.Sprint(m.Tick(start.Add(c.after)))
		if (got == fmt.Sprint([]lifecycle.Action{lifecycle.Stop{Reason: lifecycle.StopIdle}})) != c.swept {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
