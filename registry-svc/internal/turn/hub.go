package turn

import (
	"sync"

	"github.com/writ-dev/writ/registry-svc/internal/fault"
)

// watchBuffer is how many ended turns a watcher may lag behind (watch_buffer_max).
const watchBuffer = 256

// Hub tells watchers of turns that end.
type Hub struct {
	mu     sync.Mutex
	subs   map[*Subscription]struct{}
	closed bool
}

// Subscription is one watcher. C is closed when the watch ends; Err says why.
type Subscription struct {
	C    chan Turn
	hub  *Hub
	err  error
	over bool
}

// NewHub makes a hub without watchers.
func NewHub() *Hub { return &Hub{subs: map[*Subscription]struct{}{}} }

// Watch begins with now.
func (h *Hub) Watch() *Subscription {
	s := &Subscription{C: make(chan Turn, watchBuffer), hub: h}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		h.end(s, shuttingDown())
		return s
	}
	h.subs[s] = struct{}{}
	return s
}

// Stop ends the watch from the watcher's side.
func (s *Subscription) Stop() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.end(s, nil)
}

// Err says why C was closed; nil after Stop.
func (s *Subscription) Err() error {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.err
}

func (h *Hub) end(s *Subscription, err error) {
	if s.over {
		return
	}
	s.over, s.err = true, err
	delete(h.subs, s)
	close(s.C)
}

// publish never waits: a watcher that is too slow is ended, and asks for the turns that it holds when it is back.
func (h *Hub) publish(t Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		select {
		case s.C <- t:
		default:
			h.end(s, fault.New(fault.CursorInvalid, "WatchTurns", "the watcher lags behind too far, so it has missed turns that ended",
				"Watch again, then ask for each turn that you hold.", "limit_name", "watch_buffer_max"))
		}
	}
}

// Close ends every watch, now and later.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for s := range h.subs {
		h.end(s, shuttingDown())
	}
}

func shuttingDown() error {
	return fault.New(fault.ShuttingDown, "WatchTurns", "the server is stopping", "Watch again, then ask for each turn that you hold.")
}
