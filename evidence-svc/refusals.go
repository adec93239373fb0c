package evidence

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"sync"
	"time"

	"github.com/writ-dev/writ/evidence-svc/internal/store"
	"github.com/writ-dev/writ/internal/receipt"
)

// refusalKind is a hash over what makes two refusals identical: who refused what to whom and why. Times, traces and
// arguments make no difference.
type refusalKind [32]byte

func refusalOf(peer string, f receipt.Facts) (k refusalKind) {
	h := sha256.New()
	parts := []string{peer, f.Namespace, f.Call, f.State.String(), f.Reason, f.WritReason, f.AssertedBy, f.Agent, f.Conversation,
		f.Tool.GetTool(), f.Tool.GetWireFingerprint(), f.Tool.GetProviderDigest(), f.WritID}
	for _, p := range f.Principals {
		parts = append(parts, p.GetKind().String(), p.GetId())
	}
	for _, part := range parts {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		io.WriteString(h, part)
	}
	h.Sum(k[:0])
	return k
}

// refusals remembers the receipts of recent refusals. When it holds too many kinds it forgets all of them, which costs
// one receipt more for each that comes again.
type refusals struct {
	window time.Duration
	most   int
	stripe [64]sync.Mutex // one refusal of a kind at a time

	mu   sync.Mutex
	last map[refusalKind]*recentRefusal
}

type recentRefusal struct {
	receipt store.Receipt
	sealed  time.Time
	digest  [32]byte // of the envelope that came last, so that sending it again counts once
}

func newRefusals(window time.Duration, most int) *refusals {
	return &refusals{window: window, most: most, last: map[refusalKind]*recentRefusal{}}
}

func (r *refusals) lock(k refusalKind) (unlock func()) {
	m := &r.stripe[int(k[0])%len(r.stripe)]
	m.Lock()
	return m.Unlock
}

// find returns the receipt of the first such refusal of the window. again: exactly this envelope is counted already.
func (r *refusals) find(k refusalKind, digest [32]byte, now time.Time) (first store.Receipt, known, again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.last[k]
	if e == nil || now.Sub(e.sealed) >= r.window {
		return store.Receipt{}, false, false
	}
	return e.receipt, true, e.digest == digest
}

func (r *refusals) remember(k refusalKind, first store.Receipt, digest [32]byte, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.last) >= r.most {
		clear(r.last)
	}
	r.last[k] = &recentRefusal{receipt: first, sealed: now, digest: digest}
}

func (r *refusals) repeated(k refusalKind, digest [32]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.last[k]; e != nil {
		e.receipt.Count++
		e.digest = digest
	}
}
