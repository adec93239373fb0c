package registry_test

import (
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
	registry "github.com/writ-dev/writ/registry-svc"
)

// A caller sees its own turns only; that another's is there is not said. Approvers see those of their namespace.
func TestACallerSeesItsOwnTurns(t *testing.T) {
	b := newBench(t, registry.Config{})
	mine := b.open(t, &registryv1.OpenTurnRequest{Conversation: "c"})
	stranger, olga := b.turns(b.Caller("bob")), b.turns(b.Operator("olga"))
	// The same id, but another kind of principal, and the same principal of another namespace, are others.
	human := b.turns(b.Operator("ada"))
	elsewhere := b.turns(b.As(auth.Credential{ID: "ada2", Namespace: "elsewhere", Roles: []commonv1.Role{commonv1.Role_ROLE_CALLER, commonv1.Role_ROLE_OPERATOR},
		Principal: &commonv1.Principal{Id: "ada", Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT}}))
	for name, client := range map[string]registryv1.TurnServiceClient{"stranger": stranger, "another namespace": elsewhere} {
		for call, err := range map[string]error{
			"get":    second(client.GetTurn(t.Context(), &registryv1.GetTurnRequest{Turn: mine.GetId()})),
			"end":    second(client.EndTurn(t.Context(), &registryv1.EndTurnRequest{Turn: mine.GetId()})),
			"cancel": second(client.CancelTurn(t.Context(), &registryv1.CancelTurnRequest{Turn: mine.GetId()})),
		} {
			if m := refused(t, err, "TURN_NOT_FOUND"); m["name"] != mine.GetId() {
				t.Errorf("%s %s: %v", name, call, m)
			}
		}
		list, err := client.ListTurns(t.Context(), &registryv1.ListTurnsRequest{Conversation: "c"})
		if err != nil || len(list.GetTurns()) != 0 {
			t.Errorf("%s sees %v, %v", name, list, err)
		}
	}
	_, err := stranger.GetTurn(t.Context(), &registryv1.GetTurnRequest{Turn: "t_absent"})
	refused(t, err, "TURN_NOT_FOUND")
	for name, client := range map[string]registryv1.TurnServiceClient{"approver": olga, "person of the same name": human, "service": b.turns(b.Service("mcp-host"))} {
		res, err := client.GetTurn(t.Context(), &registryv1.GetTurnRequest{Turn: mine.GetId()})
		if err != nil || !proto.Equal(res.GetTurn(), mine) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A service that acts on behalf of somebody sees what that one sees.
	behalf := auth.OnBehalfOf(t.Context(), &commonv1.Principal{Id: "bob", Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT, Namespace: "default"})
	_, err = b.turns(b.Service("gateway")).GetTurn(behalf, &registryv1.GetTurnRequest{Turn: mine.GetId()})
	refused(t, err, "TURN_NOT_FOUND")
}

func TestTurnsAreListedNewestFirst(t *testing.T) {
	now := &clock{at: time.Date(2026, 11, 30, 22, 0, 0, 0, time.UTC)}
	b := newBench(t, registry.Config{}, registry.WithClock(now.now))
	var want []string
	for i := range 7 {
		now.forward(time.Second)
		req := &registryv1.OpenTurnRequest{Conversation: "even"}
		if i%2 == 1 {
			req.Conversation = "odd"
		}
		want = append([]string{b.open(t, req).GetId()}, want...)
	}
	client := b.turns(b.Caller("ada"))
	if _, err := client.EndTurn(t.Context(), &registryv1.EndTurnRequest{Turn: want[0]}); err != nil {
		t.Fatal(err)
	}
	pages := func(req *registryv1.ListTurnsRequest) (got []string) {
		t.Helper()
		for {
			res, err := client.ListTurns(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			for _, turn := range res.GetTurns() {
				got = append(got, turn.GetId())
				if len(turn.GetTools()) > 0 {
					t.Error("a list carries tools")
				}
			}
			if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
				return got
			}
		}
	}
	for _, size := range []int32{1, 2, 7, 100} {
		if got := pages(&registryv1.ListTurnsRequest{PageSize: size}); !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %v", size, got)
		}
	}
	if got := pages(&registryv1.ListTurnsRequest{PageSize: 2, Conversation: "odd"}); !slices.Equal(got, []string{want[1], want[3], want[5]}) {
		t.Errorf("%v", got)
	}
	if got := pages(&registryv1.ListTurnsRequest{State: registryv1.TurnState_TURN_STATE_ENDED}); !slices.Equal(got, want[:1]) {
		t.Errorf("%v", got)
	}
	res, err := client.ListTurns(t.Context(), &registryv1.ListTurnsRequest{PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.ListTurns(t.Context(), &registryv1.ListTurnsRequest{PageSize: 1, Conversation: "odd", PageToken: res.GetNextPageToken()})
	refused(t, err, "PAGE_TOKEN_INVALID")
}

// R49: stopping a turn cancels its cards; services that hold something for it are told; it is no error twice; and an
// ended turn can still be cancelled, since its calls may be running.
func TestEndingATurn(t *testing.T) {
	b := newBench(t, registry.Config{})
	watch, err := b.turns(b.Service("mcp-host")).WatchTurns(t.Context(), &registryv1.WatchTurnsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan *registryv1.WatchTurnsResponse, 16)
	go func() {
		defer close(events)
		for {
			e, err := watch.Recv()
			if err != nil {
				return
			}
			events <- e
		}
	}()
	client := b.turns(b.Caller("ada"))
	// The watch begins when the server has it: end turns until one is seen.
	var turn *registryv1.Turn
	eventually(t, "the watcher sees a turn end", func() bool {
		turn = b.open(t, &registryv1.OpenTurnRequest{})
		if _, err := client.EndTurn(t.Context(), &registryv1.EndTurnRequest{Turn: turn.GetId()}); err != nil {
			t.Fatal(err)
		}
		select {
		case e := <-events:
			return e.GetTurn().GetId() == turn.GetId() && e.GetTurn().GetState() == registryv1.TurnState_TURN_STATE_ENDED && e.GetNamespace() == "default"
		case <-time.After(20 * time.Millisecond):
			return false
		}
	})
	b.cards.do(func() {
		if !slices.Contains(b.cards.cancelled, "default/"+turn.GetId()) {
			t.Errorf("%v", b.cards.cancelled)
		}
	})
	again, err := client.EndTurn(t.Context(), &registryv1.EndTurnRequest{Turn: turn.GetId()})
	if err != nil || again.GetTurn().GetState() != registryv1.TurnState_TURN_STATE_ENDED {
		t.Errorf("%v %v", again, err)
	}
	cancelled, err := client.CancelTurn(t.Context(), &registryv1.CancelTurnRequest{Turn: turn.GetId()})
	if err != nil || cancelled.GetTurn().GetState() != registryv1.TurnState_TURN_STATE_CANCELLED || !proto.Equal(cancelled.GetTurn().GetEndTime(), again.GetTurn().GetEndTime()) {
		t.Errorf("%v %v", cancelled, err)
	}
	if e := <-events; e.GetTurn().GetId() != turn.GetId() || e.GetTurn().GetState() != registryv1.TurnState_TURN_STATE_CANCELLED {
		t.Errorf("%v", e)
	}
	over, err := client.EndTurn(t.Context(), &registryv1.EndTurnRequest{Turn: turn.GetId()})
	if err != nil || over.GetTurn().GetState() != registryv1.TurnState_TURN_STATE_CANCELLED {
		t.Errorf("a cancelled turn became %v, %v", over, err)
	}
	res, err := b.resolve(t, turn.GetId(), "run_command")
	if err != nil || res.GetTurn().GetState() != registryv1.TurnState_TURN_STATE_CANCELLED {
		t.Errorf("%v %v", res, err)
	}
	forbidden, err := b.turns(b.Caller("ada")).WatchTurns(t.Context(), &registryv1.WatchTurnsRequest{})
	if err == nil {
		_, err = forbidden.Recv()
	}
	refused(t, err, "ACCESS_DENIED")
}

// A watch ends with the server, and says that it does.
func TestAWatchEndsWithTheServer(t *testing.T) {
	b := newBench(t, registry.Config{})
	watch, err := b.turns(b.Service("exec")).WatchTurns(t.Context(), &registryv1.WatchTurnsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Registry.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = watch.Recv()
	refused(t, err, "SHUTTING_DOWN")
	if status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// Cards that could not be cancelled are cancelled later, also after a restart.
func TestCardsAreCancelledInTheEnd(t *testing.T) {
	store := filepath.Join(t.TempDir(), "registry.db")
	b := newBench(t, registry.Config{StorePath: store})
	turn := b.open(t, &registryv1.OpenTurnRequest{})
	b.cards.do(func() { b.cards.fail = errors.New("permission is down") })
	if _, err := b.turns(b.Caller("ada")).EndTurn(t.Context(), &registryv1.EndTurnRequest{Turn: turn.GetId()}); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	b.cards.do(func() { b.cards.fail = nil })
	b.start(t, registry.Config{StorePath: store, SweepEvery: time.Millisecond})
	eventually(t, "the cards are cancelled", func() bool {
		b.cards.mu.Lock()
		defer b.cards.mu.Unlock()
		return slices.Contains(b.cards.cancelled, "default/"+turn.GetId())
	})
}

// Words: a turn ends after 24 idle hours without open cards. A call keeps it, and so does a person who is being asked.
func TestAnIdleTurnEnds(t *testing.T) {
	now := &clock{at: time.Date(2026, 11, 30, 22, 0, 0, 0, time.UTC)}
	b := newBench(t, registry.Config{SweepEvery: time.Millisecond}, registry.WithClock(now.now))
	idle, used, asked := b.open(t, &registryv1.OpenTurnRequest{}), b.open(t, &registryv1.OpenTurnRequest{}), b.open(t, &registryv1.OpenTurnRequest{})
	b.cards.do(func() { b.cards.open[asked.GetId()] = true })
	now.forward(23 * time.Hour)
	if _, err := b.resolve(t, used.GetId(), "run_command"); err != nil {
		t.Fatal(err)
	}
	now.forward(2 * time.Hour)
	state := func(turn *registryv1.Turn) registryv1.TurnState {
		res, err := b.turns(b.Caller("ada")).GetTurn(t.Context(), &registryv1.GetTurnRequest{Turn: turn.GetId()})
		if err != nil {
			t.Fatal(err)
		}
		return res.GetTurn().GetState()
	}
	eventually(t, "the idle turn ends", func() bool { return state(idle) == registryv1.TurnState_TURN_STATE_ENDED })
	for _, turn := range []*registryv1.Turn{used, asked} {
		if s := state(turn); s != registryv1.TurnState_TURN_STATE_OPEN {
			t.Errorf("%v", s)
		}
	}
	b.cards.do(func() { b.cards.open[asked.GetId()] = false })
	eventually(t, "the answered turn ends", func() bool { return state(asked) == registryv1.TurnState_TURN_STATE_ENDED })
	if state(used) != registryv1.TurnState_TURN_STATE_OPEN {
		t.Error("the used turn ended")
	}
}

// What survives what: turns, what they froze, their owners and the use of them are there after a restart.
func TestARestartKeepsTurns(t *testing.T) {
	store := filepath.Join(t.TempDir(), "registry.db")
	cfg := registry.Config{StorePath: store}
	b := newBench(t, cfg)
	b.host.tools("fs", "count", awkward)
	b.host.failing["dead"] = startFailed("dead")
	b.add(t, "fs", "dead")
	folder := t.TempDir()
	turn := b.open(t, &registryv1.OpenTurnRequest{Conversation: "c", Workspace: folder, Agent: "a", Project: "p", Mode: commonv1.Mode_MODE_PLAN, RequestId: "r"})
	b.Stop()
	b.host.tools("fs")
	b.start(t, cfg)
	res, err := b.turns(b.Caller("ada")).GetTurn(t.Context(), &registryv1.GetTurnRequest{Turn: turn.GetId()})
	if err != nil || !proto.Equal(res.GetTurn(), turn) {
		t.Errorf("%v\n%v\n%v", err, res.GetTurn(), turn)
	}
	if bare, err := b.turns(b.Caller("ada")).GetTurn(t.Context(), &registryv1.GetTurnRequest{Turn: turn.GetId(), OmitDefinitions: true}); err != nil ||
		len(bare.GetTurn().GetTools()) != 2 || len(bare.GetTurn().GetTools()[1].GetTool().GetDefinition()) != 0 {
		t.Errorf("%v %v", bare, err)
	}
	if len(turn.GetProblems()) != 1 || turn.GetWorkspace().GetInode() == 0 {
		t.Errorf("%v", turn)
	}
	if again := b.open(t, &registryv1.OpenTurnRequest{Conversation: "c", Workspace: folder, Agent: "a", Project: "p", Mode: commonv1.Mode_MODE_PLAN, RequestId: "r"}); !proto.Equal(again, turn) {
		t.Errorf("a repetition opens another turn: %v", again)
	}
	resolved, err := b.resolve(t, turn.GetId(), "fs__count")
	if err != nil || string(resolved.GetTool().GetTool().GetDefinition()) != awkward || !resolved.GetProviderEnabled() || resolved.GetCurrentProviderDigest() != "digest-fs" {
		t.Errorf("%v %v", resolved, err)
	}
	_, err = b.turns(b.Caller("bob")).OpenTurn(t.Context(), &registryv1.OpenTurnRequest{Conversation: "c"})
	refused(t, err, "CONVERSATION_TAKEN")
	got, err := b.connectors().GetConnector(t.Context(), &registryv1.GetConnectorRequest{Name: "fs"})
	if err != nil || got.GetConnector().GetCreatedBy().GetId() != "olga" || got.GetConnector().GetToolCount() != 1 {
		t.Errorf("%v %v", got, err)
	}
}

// The Resolver answers services, of the namespace of the call, with what the turn froze and no more.
func TestTheResolver(t *testing.T) {
	b := newBench(t, registry.Config{})
	b.host.tools("fs", "read", tool("read"))
	b.add(t, "fs")
	turn := b.open(t, &registryv1.OpenTurnRequest{})
	permission := registryv1.NewResolverServiceClient(b.Service("permission"))
	for reason, req := range map[string]*registryv1.ResolveRequest{
		"TURN_NOT_FOUND":   {Turn: "t_absent", Namespace: "default"},
		"TOOL_NOT_IN_TURN": {Turn: turn.GetId(), Tool: "mcp.fs.nope", Namespace: "default"},
		"FIELD_INVALID":    {Turn: turn.GetId()},
	} {
		_, err := permission.Resolve(t.Context(), req)
		refused(t, err, reason)
	}
	_, err := permission.Resolve(t.Context(), &registryv1.ResolveRequest{Turn: turn.GetId(), Namespace: "elsewhere"})
	refused(t, err, "TURN_NOT_FOUND")
	bound := auth.ServiceCredential("permission")
	bound.Namespace, bound.ID = "elsewhere", "bound"
	_, err = registryv1.NewResolverServiceClient(b.As(bound)).Resolve(t.Context(), &registryv1.ResolveRequest{Turn: turn.GetId(), Namespace: "default"})
	refused(t, err, "TURN_NOT_FOUND")
	_, err = registryv1.NewResolverServiceClient(b.Operator("olga")).Resolve(t.Context(), &registryv1.ResolveRequest{Turn: turn.GetId(), Namespace: "default"})
	refused(t, err, "ACCESS_DENIED")
	only, err := permission.Resolve(t.Context(), &registryv1.ResolveRequest{Turn: turn.GetId(), Namespace: "default"})
	if err != nil || only.GetTool() != nil || only.GetTurn().GetId() != turn.GetId() || len(only.GetTurn().GetTools()) != 0 {
		t.Errorf("%v %v", only, err)
	}
}

// Once a turn's end was answered, nobody is told that it is open, however busy the resolver is.
func TestNobodyResolvesAnEndedTurnAsOpen(t *testing.T) {
	b := newBench(t, registry.Config{})
	permission := registryv1.NewResolverServiceClient(b.Service("permission"))
	for range 20 {
		turn := b.open(t, &registryv1.OpenTurnRequest{})
		var ended atomic.Bool
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 30 {
					before := ended.Load()
					res, err := permission.Resolve(t.Context(), &registryv1.ResolveRequest{Turn: turn.GetId(), Tool: "run_command", Namespace: "default"})
					if err != nil {
						t.Error(errs.ReasonOf(err), err)
						return
					}
					if before && res.GetTurn().GetState() == registryv1.TurnState_TURN_STATE_OPEN {
						t.Error("an ended turn is open")
						return
					}
				}
			})
		}
		if _, err := b.turns(b.Caller("ada")).EndTurn(t.Context(), &registryv1.EndTurnRequest{Turn: turn.GetId()}); err != nil {
			t.Fatal(err)
		}
		ended.Store(true)
		wg.Wait()
	}
}

// Without the kit's interceptors nobody is let in.
func TestWithoutAnIdentityNothingIsServed(t *testing.T) {
	b := newBench(t, registry.Config{})
	anonymous := b.As(auth.Credential{ID: "nobody"})
	_, err := b.turns(anonymous).OpenTurn(t.Context(), &registryv1.OpenTurnRequest{})
	refused(t, err, "ACCESS_DENIED")
	if err := b.Registry.Health(t.Context()); err != nil {
		t.Error(err)
	}
	if len(b.Registry.ServiceNames()) != 4 {
		t.Error(b.Registry.ServiceNames())
	}
}
