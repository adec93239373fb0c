package store_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/registry-svc/internal/connector"
	"github.com/writ-dev/writ/registry-svc/internal/fault"
	"github.com/writ-dev/writ/registry-svc/internal/store"
	"github.com/writ-dev/writ/registry-svc/internal/turn"
	"github.com/writ-dev/writ/registry-svc/internal/workspace"
)

// engines are all engines; each passes the one suite. reopen closes a store and opens it again.
func engines(t *testing.T) map[string]func() store.Store {
	path := filepath.Join(t.TempDir(), "registry.db")
	return map[string]func() store.Store{"sqlite": func() store.Store {
		s, err := store.OpenSQLite(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}}
}

func each(t *testing.T, test func(t *testing.T, s store.Store, reopen func() store.Store)) {
	for name, open := range engines(t) {
		t.Run(name, func(t *testing.T) {
			s := open()
			test(t, s, func() store.Store {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				return open()
			})
		})
	}
}

var at = time.Date(2026, 11, 30, 22, 0, 0, 1234, time.UTC)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestConnectorsComeBackAsTheyWere(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, reopen func() store.Store) {
		c := connector.Connector{
			Key: connector.Key{Namespace: "default", Name: "fs"}, Enabled: true, Source: connector.ByRPC, CreateTime: at,
			Spec: connector.Spec{
				Transport: "stdio", Command: "npx", Args: []string{"", "\x00bin", "é"}, Env: map[string]string{"A": "${B}"},
				WorkingFolder: "/srv", IdleSeconds: -1, AcceptHost: true,
			},
			CreatedBy: &commonv1.Principal{Id: "olga", Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_HUMAN, Namespace: "default"},
		}
		other := connector.Connector{Key: connector.Key{Namespace: "other", Name: "fs"}, Spec: connector.Spec{Transport: "http", URL: "https://x/"}, Source: connector.ByRPC, CreateTime: at.Add(time.Second), CreatedBy: &commonv1.Principal{}}
		must(t, s.InsertConnector(t.Context(), c))
		must(t, s.InsertConnector(t.Context(), other))
		if err := s.InsertConnector(t.Context(), c); !fault.Is(err, fault.ConnectorExists) {
			t.Errorf("a name is given twice: %v", err)
		}
		must(t, s.SetEnabled(t.Context(), c.Key, false))
		must(t, s.SetAcceptedFor(t.Context(), c.Key, at, "digest"))
		must(t, s.SetAcceptedFor(t.Context(), other.Key, at, "of another creation"))
		must(t, s.MarkHosted(t.Context(), c.Key, true))
		must(t, s.MarkHosted(t.Context(), c.Key, true))
		s = reopen()
		c.Enabled, c.Spec.AcceptedFor = false, "digest"
		got, err := s.Connectors(t.Context())
		must(t, err)
		if d := cmp.Diff([]connector.Connector{c, other}, got, protocmp.Transform(), cmpopts.EquateEmpty()); d != "" {
			t.Error(d)
		}
		must(t, s.DeleteConnector(t.Context(), c.Key))
		got, err = s.Connectors(t.Context())
		must(t, err)
		hosted, err := s.Hosted(t.Context())
		must(t, err)
		if len(got) != 1 || !slices.Equal(hosted, []connector.Key{c.Key}) {
			t.Errorf("%v %v", got, hosted)
		}
		must(t, s.MarkHosted(t.Context(), c.Key, false))
		if hosted, err = s.Hosted(t.Context()); err != nil || len(hosted) != 0 {
			t.Errorf("%v %v", hosted, err)
		}
		must(t, s.Ping(t.Context()))
	})
}

// R34: definitions come back byte for byte, whatever is in them; a listing replaces the one before.
func TestListingsAreKeptVerbatim(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, reopen func() store.Store) {
		a, b := connector.Key{Namespace: "default", Name: "a"}, connector.Key{Namespace: "default", Name: "b"}
		blob := []byte("{\"n\": 9007199254740993,\n \"x\":\"\x00\xff\"}")
		must(t, s.SaveListing(t.Context(), a, &connector.Catalogue{Digest: "d0", Tools: []connector.Tool{{Name: "gone", Wire: "w0", Definition: []byte("{}")}}}))
		must(t, s.SaveListing(t.Context(), a, &connector.Catalogue{Digest: "d", ServerVersion: "a 1", Time: at, Tools: []connector.Tool{
			{Name: "z", Wire: "w1", Semantic: "s1", Definition: blob}, {Name: "m", Wire: "w2", Definition: []byte("{}")},
		}}))
		must(t, s.SaveListing(t.Context(), b, &connector.Catalogue{Tools: []connector.Tool{{Name: "z", Wire: "w1", Semantic: "s1", Definition: blob}}}))
		must(t, s.SaveListing(t.Context(), connector.Key{Namespace: "other", Name: "a"}, &connector.Catalogue{Tools: []connector.Tool{{Name: "x", Wire: "w2", Definition: []byte("{}")}}}))
		s = reopen()
		all, err := s.ListedTools(t.Context(), "default", "", connector.Position{}, 10)
		must(t, err)
		var names []string
		for _, x := range all {
			names = append(names, x.Server+"."+x.Name)
		}
		if !slices.Equal(names, []string{"a.m", "a.z", "b.z"}) || string(all[1].Definition) != string(blob) || all[1].Digest != "d" || all[1].Semantic != "s1" {
			t.Errorf("%v %+v", names, all)
		}
		rest, err := s.ListedTools(t.Context(), "default", "a", connector.Position{Server: "a", Name: "m"}, 10)
		if err != nil || len(rest) != 1 || rest[0].Name != "z" {
			t.Errorf("%v %v", rest, err)
		}
		sums, err := s.Summaries(t.Context())
		if err != nil || len(sums) != 3 || sums[0].Tools != 2 || sums[0].ServerVersion != "a 1" {
			t.Errorf("%v %v", sums, err)
		}
		must(t, s.DeleteConnector(t.Context(), a))
		if all, err = s.ListedTools(t.Context(), "default", "", connector.Position{}, 10); err != nil || len(all) != 1 {
			t.Errorf("%v %v", all, err)
		}
	})
}

func ada() turn.Principal {
	return turn.Principal{ID: "ada", Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT, Namespace: "default"}
}

func sample(id string) (turn.Turn, []turn.Tool) {
	tools := []turn.Tool{{
		ID: "mcp.fs.b", Alias: "fs__b", Name: "b", Lane: commonv1.Lane_LANE_MCP, Provider: "mcp.fs", ProviderDigest: "d", Wire: "w1", Semantic: "s1",
		Definition: []byte("{\"b\":\x00}"), Class: commonv1.SecurityClass_SECURITY_CLASS_READ, Disposition: commonv1.Disposition_DISPOSITION_BLOCKED, AlwaysGate: true, Why: "so",
	}, {ID: "mcp.fs.a", Alias: "fs__a", Wire: "w2", Definition: []byte("{}")}}
	return turn.Turn{
		ID: id, State: turn.Open, Principal: ada(), AssertedBy: "gateway", Agent: "bot", Conversation: "c", Project: "p", Mode: commonv1.Mode_MODE_PLAN,
		MaxMode: commonv1.Mode_MODE_AUTO, Workspace: &workspace.Folder{Path: "/srv/x", Device: 1<<64 - 1, Inode: 1<<63 + 5}, Parent: "t_parent",
		OpenTime: at, PolicyVersion: "v", Toolset: "set", Problems: []turn.Problem{{Provider: "mcp.x", Status: []byte{1, 0, 2}}, {Provider: "mcp.y", Status: []byte{}}},
	}, tools
}

func TestTurnsComeBackAsTheyWere(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, reopen func() store.Store) {
		want, tools := sample("t_1")
		must(t, s.InsertTurn(t.Context(), want, tools, turn.RequestKey{Principal: ada(), ID: "r", Digest: "q"}, 10))
		bare := turn.Turn{ID: "t_2", State: turn.Open, Principal: ada(), Conversation: "c", OpenTime: at, Toolset: "set"}
		must(t, s.InsertTurn(t.Context(), bare, tools, turn.RequestKey{}, 10))
		s = reopen()
		got, err := s.Turn(t.Context(), "t_1")
		must(t, err)
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Error(d)
		}
		if got, err = s.Turn(t.Context(), "t_2"); err != nil || got.Workspace != nil {
			t.Errorf("%v %v", got, err)
		}
		kept, err := s.Tools(t.Context(), "set")
		must(t, err)
		if d := cmp.Diff(tools, kept, cmpopts.IgnoreUnexported(turn.Tool{})); d != "" {
			t.Error(d)
		}
		if _, err := s.Turn(t.Context(), "t_3"); !fault.Is(err, fault.TurnNotFound) {
			t.Error(err)
		}
		id, digest, ok, err := s.TurnOfRequest(t.Context(), turn.RequestKey{Principal: ada(), ID: "r"})
		if err != nil || !ok || id != "t_1" || digest != "q" {
			t.Errorf("%v %v %v %v", id, digest, ok, err)
		}
		again, _ := sample("t_4")
		if err := s.InsertTurn(t.Context(), again, tools, turn.RequestKey{Principal: ada(), ID: "r"}, 10); !errors.Is(err, turn.ErrRequestKnown) {
			t.Error(err)
		}
		if _, err := s.Turn(t.Context(), "t_4"); !fault.Is(err, fault.TurnNotFound) {
			t.Errorf("a turn is half there: %v", err)
		}
		must(t, s.ForgetRequests(t.Context(), at.Add(time.Second)))
		if _, _, ok, err := s.TurnOfRequest(t.Context(), turn.RequestKey{Principal: ada(), ID: "r"}); ok || err != nil {
			t.Errorf("%v %v", ok, err)
		}
	})
}

// Of many who end a turn at once one does; an ended turn can be cancelled once more, and never opens again.
func TestATurnEndsOnce(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, reopen func() store.Store) {
		in, tools := sample("t_1")
		must(t, s.InsertTurn(t.Context(), in, tools, turn.RequestKey{}, 10))
		var wg sync.WaitGroup
		ends := make(chan bool, 16)
		for range 16 {
			wg.Go(func() {
				_, ended, err := s.EndTurn(t.Context(), "t_1", turn.Ended, at)
				if err != nil {
					t.Error(err)
				}
				ends <- ended
			})
		}
		wg.Wait()
		close(ends)
		n := 0
		for e := range ends {
			if e {
				n++
			}
		}
		if n != 1 {
			t.Errorf("it ended %d times", n)
		}
		pending, err := s.CardsToCancel(t.Context(), 10)
		if err != nil || len(pending) != 1 {
			t.Errorf("%v %v", pending, err)
		}
		must(t, s.CardsCancelled(t.Context(), "t_1"))
		got, ended, err := s.EndTurn(t.Context(), "t_1", turn.Cancelled, at.Add(time.Hour))
		if err != nil || !ended || got.State != turn.Cancelled || !got.EndTime.Equal(at) {
			t.Errorf("%v %v %v", got, ended, err)
		}
		s = reopen()
		for _, state := range []turn.State{turn.Ended, turn.Cancelled, turn.Open} {
			got, ended, err := s.EndTurn(t.Context(), "t_1", state, at)
			if err != nil || ended || got.State != turn.Cancelled {
				t.Errorf("%v: %v %v %v", state, got, ended, err)
			}
		}
		if _, _, err := s.EndTurn(t.Context(), "t_9", turn.Ended, at); !fault.Is(err, fault.TurnNotFound) {
			t.Error(err)
		}
	})
}

func TestConversationsAndRoomAreTakenWithTheTurn(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, _ func() store.Store) {
		var wg sync.WaitGroup
		won := make(chan turn.Principal, 8)
		for i := range 8 {
			wg.Go(func() {
				in, tools := sample(fmt.Sprintf("t_%d", i))
				in.Principal.ID = fmt.Sprintf("p%d", i)
				err := s.InsertTurn(t.Context(), in, tools, turn.RequestKey{}, 2)
				if err == nil {
					won <- in.Principal
				} else if !fault.Is(err, fault.ConversationTaken) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%d own the conversation", len(won))
		}
		p := <-won
		owner, ok, err := s.ConversationOwner(t.Context(), "default", "c")
		if err != nil || !ok || owner != p {
			t.Errorf("%v %v %v", owner, ok, err)
		}
		if _, ok, err := s.ConversationOwner(t.Context(), "other", "c"); ok || err != nil {
			t.Errorf("%v %v", ok, err)
		}
		for i, want := range []bool{true, false} {
			in, tools := sample(fmt.Sprintf("t_more_%d", i))
			in.Principal = p
			err := s.InsertTurn(t.Context(), in, tools, turn.RequestKey{}, 2)
			if (err == nil) != want || err != nil && !fault.Is(err, fault.TooManyTurns) {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
}

func TestIdleTurnsAndUse(t *testing.T) {
	each(t, func(t *testing.T, s store.Store, _ func() store.Store) {
		for i := range 5 {
			in, tools := sample(fmt.Sprintf("t_%d", i))
			must(t, s.InsertTurn(t.Context(), in, tools, turn.RequestKey{}, 10))
		}
		must(t, s.Touch(t.Context(), map[string]time.Time{"t_1": at.Add(time.Hour), "t_2": at.Add(-time.Hour), "t_absent": at}))
		if _, _, err := s.EndTurn(t.Context(), "t_3", turn.Ended, at); err != nil {
			t.Fatal(err)
		}
		var got []string
		for after := ""; ; {
			page, err := s.IdleTurns(t.Context(), at.Add(time.Minute), after, 2)
			must(t, err)
			if len(page) == 0 {
				break
			}
			for _, x := range page {
				got, after = append(got, x.ID), x.ID
			}
		}
		if !slices.Equal(got, []string{"t_0", "t_2", "t_4"}) {
			t.Errorf("%v", got)
		}
		if none, err := s.IdleTurns(t.Context(), at, "", 10); err != nil || len(none) != 0 {
			t.Errorf("use went back in time: %v %v", none, err)
		}
		p := ada()
		list, err := s.ListTurns(t.Context(), turn.Filter{Namespace: "default", Principal: &p, State: turn.Open, Before: "t_4", Limit: 2})
		if err != nil || len(list) != 2 || list[0].ID != "t_2" || list[1].ID != "t_1" {
			t.Errorf("%v %v", list, err)
		}
	})
}
