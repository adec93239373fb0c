// Package execution holds the event logs of calls: what an execution said so far,
// for whoever watches now and whoever attaches later. It knows nothing of what the
// events are.
package execution

import (
	"context"
	"sync"
	"time"
)

// Log is the event log of one execution. Events are numbered from 1 without gaps.
type Log[E any] struct {
	mu      sync.Mutex
	events  []E
	most    int
	ended   bool
	err     error
	changed chan struct{}
}

// NewLog makes an empty log that keeps at most this many events that may be lost.
func NewLog[E any](most int) *Log[E] { return &Log[E]{most: most, changed: make(chan struct{})} }

// Add appends the event that make builds for its number. One that may be lost is
// dropped when the log is full, so that a server can't fill the memory with
// progress; the numbers stay without gaps.
func (l *Log[E]) Add(mayBeLost bool, build func(sequence int64) E) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || mayBeLost && len(l.events) >= l.most {
		return
	}
	l.events = append(l.events, build(int64(len(l.events))+1))
	l.wake()
}

// End ends the log; err is what readers get after the last event.
func (l *Log[E]) End(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ended, l.err = true, err
		l.wake()
	}
}

func (l *Log[E]) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Follow sends every event after the cursor, and those to come, until the log
// ends, send fails or ctx ends.
func (l *Log[E]) Follow(ctx context.Context, after int64, send func(E) error) error {
	for at := max(after, 0); ; {
		l.mu.Lock()
		var batch []E
		if at < int64(len(l.events)) {
			batch = l.events[at:len(l.events):len(l.events)]
		}
		ended, err, changed := l.ended, l.err, l.changed
		l.mu.Unlock()
		for _, e := range batch {
			if err := send(e); err != nil {
				return err
			}
		}
		at += int64(len(batch))
		if len(batch) > 0 {
			continue
		}
		if ended {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Key names a call.
type Key struct{ Namespace, Call string }

// Run is one execution.
type Run[E any] struct {
	Key     Key
	Log     *Log[E]
	Claimed bool // set by its conductor before End
	cancel  context.CancelCauseFunc
	ended   time.Time
}

// Table holds the executions that run and those that ended lately.
type Table[E any] struct {
	mu      sync.Mutex
	running map[Key]*Run[E]
	kept    map[Key]*Run[E]
	order   []Key // of kept, oldest first
	most    int
	keep    time.Duration
	now     func() time.Time
}

// NewTable returns a table that keeps at most this many ended executions, for
// this long.
func NewTable[E any](most int, keep time.Duration, now func() time.Time) *Table[E] {
	return &Table[E]{running: map[Key]*Run[E]{}, kept: map[Key]*Run[E]{}, most: most, keep: keep, now: now}
}

// Admission is the answer to Begin.
type Admission int

// The answers.
const (
	Admitted Admission = iota
	// Taken says that one of that name runs already.
	Taken
	// Full says that as many run as may.
	Full
)

// Begin enters an execution, unless one of that name, or `most` of them, run already.
func (t *Table[E]) Begin(r *Run[E], most int, cancel context.CancelCauseFunc) Admission {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.running[r.Key] != nil:
		return Taken
	case len(t.running) >= most:
		return Full
	}
	r.cancel = cancel
	t.running[r.Key] = r
	return Admitted
}

// End moves an execution to the ended ones. One that was only refused does not
// take the place of one that ran.
func (t *Table[E]) End(r *Run[E]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.running, r.Key)
	r.ended = t.now()
	t.prune()
	if old := t.kept[r.Key]; old != nil && old.Claimed && !r.Claimed {
		return
	} else if old == nil {
		t.order = append(t.order, r.Key)
	}
	t.kept[r.Key] = r
}

func (t *Table[E]) prune() {
	for len(t.order) > 0 {
		oldest := t.kept[t.order[0]]
		if len(t.order) < t.most && t.now().Sub(oldest.ended) < t.keep {
			return
		}
		delete(t.kept, t.order[0])
		t.order = t.order[1:]
	}
}

// Find returns the execution of that name; nil when there is none.
func (t *Table[E]) Find(k Key) *Run[E] {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.prune()
	if old := t.kept[k]; old != nil && old.Claimed {
		return old // a later presentation of a call that ran changes nothing
	}
	if r := t.running[k]; r != nil {
		return r
	}
	return t.kept[k]
}

// Cancel ends a running execution's context with why; false when none runs.
func (t *Table[E]) Cancel(k Key, why error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.running[k]
	if r != nil {
		r.cancel(why)
	}
	return r != nil
}
