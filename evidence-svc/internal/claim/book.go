package claim

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/writ-dev/writ/clients/go/writtoken"
)

// Key names a call.
type Key struct{ Namespace, Call string }

// Entry is an open claim.
type Entry struct {
	Key
	ID       int64 // in the store; 0 for a reservation
	Executor string
	Claimed  time.Time
	Writ     string
	Claims   *writtoken.Claims // verified when the claim was taken
}

// Durable tells whether the claim is on disk.
func (e *Entry) Durable() bool { return e.ID != 0 }

// Book holds the open claims in memory: every durable one, and the reservations of read classes, of which it forgets
// the oldest when there are too many or they are too old. A forgotten reservation loses nothing but the shortcut: its
// writ is verified again when the receipt is sealed. Entries are never changed.
type Book struct {
	maxReserved int
	reserveFor  time.Duration

	mu       sync.Mutex
	open     map[Key]*Entry
	durable  map[string]int // by namespace
	reserved *list.List     // of *Entry, oldest first
	place    map[Key]*list.Element
}

// NewBook makes an empty book that keeps at most maxReserved reservations, each for at most reserveFor.
func NewBook(maxReserved int, reserveFor time.Duration) *Book {
	return &Book{maxReserved: maxReserved, reserveFor: reserveFor,
		open: map[Key]*Entry{}, durable: map[string]int{}, reserved: list.New(), place: map[Key]*list.Element{}}
}

// Get returns the open claim of a call, nil for none.
func (b *Book) Get(k Key) *Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open[k]
}

// Durable counts the durable claims of a namespace.
func (b *Book) Durable(namespace string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.durable[namespace]
}

// Add enters a claim. A reservation takes the place of an older one, never that of a durable claim.
func (b *Book) Add(e *Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.open[e.Key]; old != nil && old.Durable() {
		return
	}
	b.remove(e.Key)
	b.open[e.Key] = e
	if e.Durable() {
		b.durable[e.Namespace]++
		return
	}
	b.place[e.Key] = b.reserved.PushBack(e)
	b.prune(e.Claimed)
}

// Remove takes out the claim of a call that has ended.
func (b *Book) Remove(k Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remove(k)
}

func (b *Book) remove(k Key) {
	e := b.open[k]
	if e == nil {
		return
	}
	delete(b.open, k)
	if e.Durable() {
		if b.durable[k.Namespace]--; b.durable[k.Namespace] == 0 {
			delete(b.durable, k.Namespace)
		}
		return
	}
	b.reserved.Remove(b.place[k])
	delete(b.place, k)
}

// Prune forgets reservations that are too old.
func (b *Book) Prune(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prune(now)
}

func (b *Book) prune(now time.Time) {
	for front := b.reserved.Front(); front != nil; front = b.reserved.Front() {
		e := front.Value.(*Entry)
		if b.reserved.Len() <= b.maxReserved && now.Sub(e.Claimed) < b.reserveFor {
			return
		}
		b.remove(e.Key)
	}
}

// OfExecutor returns the durable claims of an executor with an id above after, oldest first, at most limit.
func (b *Book) OfExecutor(executor, namespace string, after int64, limit int) []*Entry {
	b.mu.Lock()
	var found []*Entry
	for _, e := range b.open {
		if e.Durable() && e.Executor == executor && e.ID > after && (namespace == "" || e.Namespace == namespace) {
			found = append(found, e)
		}
	}
	b.mu.Unlock()
	slices.SortFunc(found, func(x, y *Entry) int { return int(x.ID - y.ID) })
	return found[:min(limit, len(found))]
}

// OfTrace tells whether an open claim with this trace id passes the test.
func (b *Book) OfTrace(traceID string, test func(*Entry) bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.open {
		if len(e.Claims.Trace) >= 35 && e.Claims.Trace[3:35] == traceID && test(e) {
			return true
		}
	}
	return false
}
