package conduct

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
)

// crowded is how much of a call's events is kept when all calls together hold more than their share. Bytes.
const crowded = 64 << 10

// budget is what the logs of all calls may hold together.
type budget struct {
	max  int64
	used atomic.Int64
}

// eventLog keeps the last events of a call. Where it is over its limits the oldest progress or output goes first, then
// a state of the card that a later one replaced; accepted, authorized, started, the last card and the outcome stay.
type eventLog struct {
	mu      sync.Mutex
	events  []entry
	bytes   int64
	last    int64
	changed chan struct{}
	closed  bool
	err     error

	maxEvents int
	maxBytes  int64
	shared    *budget
	now       func() time.Time
}

type entry struct {
	event *gatewayv1.CallEvent
	size  int64
}

func newLog(after int64, l Limits, shared *budget, now func() time.Time) *eventLog {
	return &eventLog{
		last: after, changed: make(chan struct{}), maxEvents: l.Events, maxBytes: l.EventBytes, shared: shared, now: now,
	}
}

func (l *eventLog) append(e *gatewayv1.CallEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.push(e)
	l.wake()
}

func (l *eventLog) push(e *gatewayv1.CallEvent) {
	l.last++
	e.Sequence, e.Time = l.last, timestamppb.New(l.now())
	n := entry{e, int64(proto.Size(e))}
	l.events = append(l.events, n)
	l.account(n.size)
	for l.over() {
		i := l.expendable()
		if i < 0 {
			return
		}
		l.account(-l.events[i].size)
		l.events = append(l.events[:i], l.events[i+1:]...)
	}
}

func (l *eventLog) account(n int64) {
	l.bytes += n
	l.shared.used.Add(n)
}

func (l *eventLog) over() bool {
	if len(l.events) > l.maxEvents || l.bytes > l.maxBytes {
		return true
	}
	return l.bytes > crowded && l.shared.used.Load() > l.shared.max
}

// expendable is the index of the event that goes next, -1 where all have to stay.
func (l *eventLog) expendable() int {
	replaced, lastCard := -1, -1
	for i, e := range l.events {
		switch ev := e.event.GetEvent().(type) {
		case *gatewayv1.CallEvent_Execution:
			if ev.Execution.GetStarted() == nil {
				return i
			}
		case *gatewayv1.CallEvent_Card:
			if lastCard >= 0 && replaced < 0 {
				replaced = lastCard
			}
			lastCard = i
		}
	}
	return replaced
}

// close ends the log: with its last event, or with an error where there is no outcome.
func (l *eventLog) close(last *gatewayv1.CallEvent, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if last != nil {
		l.push(last)
	}
	l.closed, l.err = true, err
	l.wake()
}

// slim forgets what only somebody who watched live wants to see: the record has the rest.
func (l *eventLog) slim() {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := make([]entry, 0, 8)
	for _, e := range l.events {
		if ev, ok := e.event.GetEvent().(*gatewayv1.CallEvent_Execution); ok && ev.Execution.GetStarted() == nil {
			l.account(-e.size)
			continue
		}
		kept = append(kept, e)
	}
	l.events = kept
}

// release gives the log's share of the budget back. Who still watches reads on.
func (l *eventLog) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.account(-l.bytes)
}

func (l *eventLog) size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

func (l *eventLog) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// read returns the events after a cursor, and what to wait for when there is more to come.
func (l *eventLog) read(after int64) (events []*gatewayv1.CallEvent, changed <-chan struct{}, closed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.event.GetSequence() > after {
			events = append(events, e.event)
		}
	}
	return events, l.changed, l.closed, l.err
}

// start is the cursor from which a watcher really begins. One that is beyond the end comes from another life of the
// gateway and means everything; the outcome is sent again to whoever asks again.
func (l *eventLog) start(after int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case after > l.last:
		return 0
	case l.closed && l.err == nil && after == l.last:
		return after - 1
	}
	return after
}

// watch sends the events after a cursor until the outcome. Events must not be changed by who gets them.
func (l *eventLog) watch(ctx context.Context, after int64, send func(*gatewayv1.CallEvent) error) error {
	after = l.start(after)
	for {
		events, changed, closed, err := l.read(after)
		for _, e := range events {
			if err := send(e); err != nil {
				return err
			}
			after = e.GetSequence()
		}
		if closed {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
