// Package run holds one sandboxed execution: its plan, its event log, what is
// kept of its output, and its result. It knows nothing of transport or storage.
package run

import (
	"context"
	"sync"
	"time"
)

// Limits of an event log. The output that an execution keeps is bounded by its
// plan; these bound how finely it is cut.
const (
	maxChunk        = 32 << 10 // bytes of one output event
	maxOutputEvents = 8192     // later output is kept for the result, but sends no event
)

// Stream is one of a command's two output streams.
type Stream int

// The streams.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// Event is one entry of a log. Exactly one of Output and Body is set.
type Event struct {
	Sequence int64 // from 1, without gaps
	Time     time.Time
	Stream   Stream
	Output   []byte
	Body     any // what the owner put in: a start, an outcome
}

// Log is the event log of one execution. One goroutine at a time appends; any
// number read, each at its own pace. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	events  []Event
	outputs int
	read    int64 // highest sequence that any reader has seen
	ended   bool
	err     error
	changed chan struct{}
	now     func() time.Time
}

// NewLog makes an empty log.
func NewLog(now func() time.Time) *Log { return &Log{changed: make(chan struct{}), now: now} }

// Append adds an event.
func (l *Log) Append(body any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.add(Event{Body: body})
}

// Output adds a piece of output. Pieces that nobody has read yet are joined.
func (l *Log) Output(s Stream, b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || len(b) == 0 {
		return
	}
	if n := len(l.events); n > 0 {
		last := &l.events[n-1]
		if last.Stream == s && last.Sequence > l.read && len(last.Output)+len(b) <= maxChunk {
			last.Output = append(last.Output, b...)
			return
		}
	}
	if l.outputs == maxOutputEvents {
		return
	}
	l.outputs++
	l.add(Event{Stream: s, Output: append([]byte(nil), b...)})
}

// End adds the last event, or ends the log with an error instead (body nil).
func (l *Log) End(body any, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	if body != nil {
		l.add(Event{Body: body})
	}
	l.ended, l.err = true, err
	l.wake()
}

func (l *Log) add(e Event) {
	e.Sequence, e.Time = int64(len(l.events))+1, l.now()
	l.events = append(l.events, e)
	l.wake()
}

func (l *Log) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Next returns the event after the cursor, waiting for it. more is false at
// the end of the log; err is then what ended it, or ctx's error.
func (l *Log) Next(ctx context.Context, after int64) (e Event, more bool, err error) {
	for {
		l.mu.Lock()
		if after < int64(len(l.events)) {
			e = l.events[max(after, 0)]
			l.read = max(l.read, e.Sequence)
			l.mu.Unlock()
			return e, true, nil
		}
		ended, err, changed := l.ended, l.err, l.changed
		l.mu.Unlock()
		if ended {
			return Event{}, false, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Event{}, false, context.Cause(ctx)
		}
	}
}
