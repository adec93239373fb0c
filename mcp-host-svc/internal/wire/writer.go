package wire

import (
	"context"
	"io"
	"sync/atomic"
)

// A server that does not read its standard input blocks whoever writes to it.
// Only the writer goroutine is ever blocked; everybody else waits with a
// context, and learns whether the line had begun to go out.

const (
	outQueued int32 = iota
	outWriting
	outWithdrawn
)

type outgoing struct {
	data  []byte
	state atomic.Int32
	done  chan struct{} // closed when written, failed or skipped
}

// withdraw takes the line back; false means that it has begun to go out.
func (o *outgoing) withdraw() bool { return o.state.CompareAndSwap(outQueued, outWithdrawn) }

type writer struct {
	w      io.WriteCloser
	queue  chan *outgoing
	stop   chan struct{}
	failed atomic.Bool
}

func newWriter(w io.WriteCloser, depth int, stop chan struct{}) *writer {
	return &writer{w: w, queue: make(chan *outgoing, depth), stop: stop}
}

func (w *writer) run() {
	for {
		select {
		case <-w.stop:
			return
		case o := <-w.queue:
			if o.state.CompareAndSwap(outQueued, outWriting) && !w.failed.Load() {
				if _, err := w.w.Write(o.data); err != nil {
					w.failed.Store(true)
				}
			}
			close(o.done)
		}
	}
}

// enqueue hands a line to the writer; ctx bounds the wait for a place in the queue.
func (w *writer) enqueue(ctx context.Context, data []byte) (*outgoing, error) {
	o := &outgoing{data: data, done: make(chan struct{})}
	select {
	case w.queue <- o:
		return o, nil
	default:
	}
	select {
	case w.queue <- o:
		return o, nil
	case <-w.stop:
		return nil, &ClosedError{}
	case <-ctx.Done():
		return nil, &InterruptedError{Cause: context.Cause(ctx)}
	}
}

// offer hands a line to the writer if there is room and drops it otherwise: for
// what may be lost, such as a cancellation.
func (w *writer) offer(data []byte) {
	o := &outgoing{data: data, done: make(chan struct{})}
	select {
	case w.queue <- o:
	default:
	}
}
