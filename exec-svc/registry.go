package exec

import (
	"sync"
	"time"

	"github.com/writ-dev/writ/clients/go/writtoken"
	"github.com/writ-dev/writ/internal/toolname"

	"github.com/writ-dev/writ/exec-svc/internal/run"
)

// callKey names a call: a call's name is unique in its namespace.
type callKey struct{ namespace, call string }

// execution is one presented writ on its way to an outcome.
type execution struct {
	token     string
	arguments []byte
	namespace string // of the peer, until a writ says it
	log       *run.Log

	claims  *writtoken.Claims // once verified
	claimed bool              // written by its conductor, read once it has ended
	cancel  chan struct{}     // closed by the first Cancel
	once    sync.Once
	reason  string // of the cancellation; set before cancel is closed
	ended   time.Time
}

func (e *execution) key() callKey {
	return callKey{e.claims.Namespace, toolname.Call(e.claims.Turn, e.claims.Call)}
}

// stop asks the execution to end.
func (e *execution) stop(reason string) {
	e.once.Do(func() {
		e.reason = reason
		close(e.cancel)
	})
}

func (e *execution) cancelled() bool {
	select {
	case <-e.cancel:
		return true
	default:
		return false
	}
}

// registry holds the executions that run, and those that ended lately.
type registry struct {
	mu      sync.Mutex
	limits  Limits
	now     func() time.Time
	running map[callKey]*execution
	kept    map[callKey]*execution
	order   []callKey // of kept, oldest first
}

func newRegistry(l Limits, now func() time.Time) *registry {
	return &registry{limits: l, now: now, running: map[callKey]*execution{}, kept: map[callKey]*execution{}}
}

// admission is the answer to add.
type admission int

const (
	admitted admission = iota
	alreadyRunning
	tooMany
)

func (r *registry) add(e *execution) admission {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.running[e.key()]; ok {
		return alreadyRunning
	}
	if len(r.running) >= r.limits.RunsMax {
		return tooMany
	}
	r.running[e.key()] = e
	return admitted
}

// end moves an execution to the kept ones. One that was only refused does not
// replace the record of one that ran.
func (r *registry) end(e *execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := e.key()
	delete(r.running, k)
	e.ended = r.now()
	e.arguments, e.token = nil, "" // the receipt has them; what is kept is for Attach
	r.prune()
	if _, known := r.kept[k]; known && !e.claimed {
		return
	} else if !known {
		r.order = append(r.order, k)
	}
	r.kept[k] = e
}

func (r *registry) prune() {
	for len(r.order) > 0 {
		oldest := r.kept[r.order[0]]
		if len(r.order) < r.limits.KeptMax && r.now().Sub(oldest.ended) < r.limits.KeptFor {
			return
		}
		delete(r.kept, r.order[0])
		r.order = r.order[1:]
	}
}

func (r *registry) find(k callKey) *execution {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.prune()
	kept := r.kept[k]
	if e, ok := r.running[k]; ok && (kept == nil || !kept.claimed) {
		return e
	}
	return kept // a later presentation of a call that was claimed changes nothing
}

func (r *registry) isRunning(k callKey) (*execution, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.running[k]
	return e, ok
}

func (r *registry) live() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.running)
}
