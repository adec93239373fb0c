package permission_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/testkit"
	permission "github.com/writ-dev/writ/permission-svc"
	"google.golang.org/grpc"
)

// watcher collects what a watch sends, as "call state".
type watcher struct {
	mu     sync.Mutex
	events []string
	last   string
	err    error
	done   chan struct{}
	stop   context.CancelFunc
}

func (h *house) watch(conn grpc.ClientConnInterface, cursor string) *watcher {
	h.t.Helper()
	ctx, stop := context.WithCancel(h.t.Context())
	stream, err := permissionv1.NewCardServiceClient(conn).WatchCards(ctx, &permissionv1.WatchCardsRequest{Cursor: cursor})
	if err != nil {
		h.t.Fatal(err)
	}
	w := &watcher{done: make(chan struct{}), stop: stop, last: cursor}
	go func() {
		defer close(w.done)
		for {
			r, err := stream.Recv()
			w.mu.Lock()
			if err != nil {
				w.err = err
				w.mu.Unlock()
				return
			}
			w.events = append(w.events, r.GetCard().GetCall()+" "+strings.ToLower(strings.TrimPrefix(r.GetCard().GetState().String(), "CARD_STATE_"))+" "+r.GetCard().GetEtag())
			w.last = r.GetCursor()
			w.mu.Unlock()
		}
	}()
	h.t.Cleanup(func() { stop(); <-w.done })
	return w
}

func (w *watcher) seen() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.events, ", ")
}

func (w *watcher) cursor() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

func (w *watcher) want(t *testing.T, want string) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for w.seen() != want {
		if time.Now().After(deadline) {
			t.Fatalf("seen: %s\nwant: %s", w.seen(), want)
		}
		time.Sleep(time.Millisecond)
	}
}

// R108, R49: the open cards first, then every change, in one order for every watcher; a watcher that lost the stream
// goes on with its cursor, also after a restart of the service, and misses nothing.
func TestWatchersSeeOneOrder(t *testing.T) {
	path := t.TempDir() + "/permission.db"
	h := start(t, permission.Config{StorePath: path})
	h.turn("t_1", manual)
	a := h.ask("t_1", "a", "mcp.fs.write_file", `{"path":"a"}`)
	gone := h.ask("t_1", "gone", "mcp.fs.write_file", `{"path":"a"}`)
	h.approve(gone, once)
	b := h.ask("t_1", "b", "mcp.fs.write_file", `{"path":"a"}`)
	one, two, mine, none := h.watch(h.Approver("alice"), ""), h.watch(h.Service("gateway"), ""), h.watch(h.Caller("bot"), ""), h.watch(h.Caller("mallory"), "")
	for _, w := range []*watcher{one, two, mine} {
		w.want(t, "a pending 1, b pending 1")
	}
	early := two.cursor()
	two.stop()
	<-two.done
	h.approve(b, once)
	h.ask("t_1", "c", "mcp.fs.write_file", `{"path":"a"}`)
	if _, err := h.decide(h.Approver("alice"), a, no, 0); err != nil {
		t.Fatal(err)
	}
	const rest = "b approved 2, c pending 1, a denied 2"
	one.want(t, "a pending 1, b pending 1, "+rest)
	mine.want(t, one.seen())
	h.watch(h.Service("gateway"), early).want(t, rest)
	if none.seen() != "" {
		t.Error("another's cards were sent:", none.seen())
	}
	cursor := one.cursor()
	h.Stop()
	<-one.done
	if errs.ReasonOf(one.err) != "SHUTTING_DOWN" {
		t.Errorf("ended with %v", one.err)
	}
	h2 := &house{restart(t, h, permission.Config{StorePath: path}), t, h.clock}
	again := h2.watch(h2.Approver("alice"), cursor)
	whole := h2.watch(h2.Approver("alice"), "cards.0")
	whole.want(t, "a pending 1, gone pending 1, gone approved 2, b pending 1, "+rest)
	h2.want(h2.write("t_1", "c"), "pending")
	h2.want(h2.write("t_1", "b"), "allowed")
	c := h2.ask("t_1", "c", "mcp.fs.write_file", `{"path":"a"}`)
	h2.approve(c, once)
	again.want(t, "c approved 2")
	h2.watch(h2.Approver("alice"), "").want(t, "")
}

// A cursor of another stream, or from the future of this one, is refused.
func TestABadCursorIsRefused(t *testing.T) {
	h := start(t, permission.Config{})
	for _, cursor := range []string{"x", "cards.", "cards.-1", "cards.999", "receipts.0"} {
		w := h.watch(h.Approver("alice"), cursor)
		<-w.done
		wantReason(t, w.err, "CURSOR_INVALID")
	}
}

// WatchDecision sends the state now, then each change, and ends after the decision.
func TestWatchingOneDecision(t *testing.T) {
	testkit.NoLeaks(t)
	h := start(t, permission.Config{})
	h.turn("t_1", manual)
	c := h.ask("t_1", "c1", "mcp.fs.write_file", `{"path":"a"}`)
	watch := func(conn grpc.ClientConnInterface, call string) (states []string, err error) {
		stream, err := permissionv1.NewAuthorizationServiceClient(conn).WatchDecision(t.Context(), &permissionv1.WatchDecisionRequest{Turn: "t_1", Call: call})
		for err == nil {
			var r *permissionv1.WatchDecisionResponse
			if r, err = stream.Recv(); err == nil {
				states = append(states, r.GetCard().GetState().String())
				if len(states) == 1 && r.GetCard().GetState() == permissionv1.CardState_CARD_STATE_PENDING {
					h.approve(c, once)
				}
			}
		}
		return states, err
	}
	states, err := watch(h.Caller("bot"), "c1")
	if got := fmt.Sprint(states, err); got != "[CARD_STATE_PENDING CARD_STATE_APPROVED] EOF" {
		t.Fatal(got)
	}
	if states, err = watch(h.Caller("bot"), "c1"); fmt.Sprint(states, err) != "[CARD_STATE_APPROVED] EOF" {
		t.Fatal(states, err)
	}
	_, err = watch(h.Caller("mallory"), "c1")
	wantReason(t, err, "CARD_NOT_FOUND")
	_, err = watch(h.Caller("bot"), "nope")
	wantReason(t, err, "CARD_NOT_FOUND")
}
