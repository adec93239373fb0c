package conduct

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/ids"
)

func (w *world) Claim(_ context.Context, k Key) (Claim, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.next("claim"); f == lost || f == answerLost {
		return Claim{}, away("evidence")
	}
	c := w.claims[k]
	if c == nil {
		return Claim{}, &PeerError{Peer: "evidence", Kind: Missing, Err: errors.New("no such claim")}
	}
	w.told[k] = w.told[k] || c.Durable
	return *c, nil
}

func (w *world) Recorded(_ context.Context, k Key, _ *commonv1.Principal) (Recorded, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next("recorded") == lost {
		return Recorded{}, away("evidence")
	}
	r, ok := w.records[k]
	if !ok {
		return r, &PeerError{Peer: "evidence", Kind: Missing, Err: errors.New("no such receipt")}
	}
	return r, nil
}

func (w *world) Seal(_ context.Context, e Ending) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.next("seal")
	if f == lost {
		return "", away("evidence")
	}
	id := ids.New("r_", rand.Reader)
	if e.Outcome.GetState() == commonv1.OutcomeState_OUTCOME_STATE_REFUSED {
		w.refusals[id] = true
	} else if c := w.claims[e.Ask.Key]; c != nil {
		return "", &PeerError{Peer: "evidence", Kind: Taken, Err: errors.New("claimed")}
	} else {
		id = w.record(e.Ask.Key, e.Outcome).Receipt
	}
	if f == answerLost {
		return "", away("evidence")
	}
	return id, nil
}

func (w *world) Owned(context.Context, string, *commonv1.Principal) error { return nil }

func (w *world) status(err error) *statuspb.Status { return status(fmt.Sprintf("%T", err)) }

func (w *world) readWrit(writ string) (Writ, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Writ{Tool: "mcp.fs.write_file", Effect: w.effect, Expiry: w.expiry[writ]}, true
}

func status(reason string, kv ...string) *statuspb.Status {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: "writ.dev", Metadata: map[string]string{}}
	for i := 0; i+1 < len(kv); i += 2 {
		info.Metadata[kv[i]] = kv[i+1]
	}
	detail, err := anypb.New(info)
	if err != nil {
		panic(err)
	}
	return &statuspb.Status{Code: 9, Message: reason, Details: []*anypb.Any{detail}}
}

type noTracer struct{}

func (noTracer) Call(base, _ context.Context, _ Ask) (context.Context, Span) { return base, noSpan{} }

type noSpan struct{}

func (noSpan) TraceID() string             { return "0af7651916cd43dd8448eb211c80319c" }
func (noSpan) Tool(string)                 {}
func (noSpan) Card(string)                 {}
func (noSpan) End(_, _, _ string, _ error) {}
