package registry_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/errs"
	registry "github.com/writ-dev/writ/registry-svc"
)

// Rule 8: every limit is in the error that it makes.
func TestLimitsAreNamed(t *testing.T) {
	b := newBench(t, registry.Config{Limits: registry.Limits{OpenTurns: 3, ToolsPerTurn: 3, DefinitionBytes: 1 << 20, InlineDefinitions: 8000}})
	b.host.tools("a", "one", tool("one"), "two", tool("two"))
	b.host.tools("b", "three", tool("three"))
	b.host.tools("c", "big", `{"x":"`+strings.Repeat("y", 9000)+`"}`)
	b.add(t, "a", "b", "c")
	turn := b.open(t, &registryv1.OpenTurnRequest{Tools: []string{"mcp.a.*", "mcp.b.*", "run_command"}})
	if got := ids(turn); !slices.Equal(got, []string{"run_command", "mcp.a.one", "mcp.a.two"}) || len(turn.GetProblems()) != 1 {
		t.Errorf("a provider is in as a whole or not at all: %v", got)
	}
	if m := errs.Metadata(status.FromProto(turn.GetProblems()[0].GetStatus()).Err()); m["limit_name"] != "tools_per_turn_max" || m["limit"] != "3" || m["got"] != "4" {
		t.Errorf("%v", m)
	}
	_, err := b.turns(b.Caller("ada")).OpenTurn(t.Context(), &registryv1.OpenTurnRequest{Tools: []string{"mcp.c.*"}})
	if m := refused(t, err, "LIMIT_EXCEEDED"); m["limit_name"] != "turn_inline_definitions_max_bytes" {
		t.Errorf("%v", m)
	}
	big := b.open(t, &registryv1.OpenTurnRequest{Tools: []string{"mcp.c.*"}, OmitDefinitions: true})
	if res, err := b.resolve(t, big.GetId(), "mcp.c.big"); err != nil || len(res.GetTool().GetTool().GetDefinition()) < 9000 {
		t.Errorf("%v", err)
	}
	got, err := b.turns(b.Caller("ada")).GetTurn(t.Context(), &registryv1.GetTurnRequest{Turn: big.GetId()})
	if err != nil || len(got.GetTurn().GetTools()) != 1 || len(got.GetTurn().GetTools()[0].GetTool().GetDefinition()) != 0 {
		t.Errorf("%v %v", got, err)
	}
	b.open(t, &registryv1.OpenTurnRequest{Tools: []string{"run_command"}})
	_, err = b.turns(b.Caller("ada")).OpenTurn(t.Context(), &registryv1.OpenTurnRequest{Tools: []string{"run_command"}})
	if m := refused(t, err, "TOO_MANY_TURNS"); m["limit_name"] != "open_turns_max" || m["limit"] != "3" {
		t.Errorf("%v", m)
	}
	if _, err := b.turns(b.Caller("bob")).OpenTurn(t.Context(), &registryv1.OpenTurnRequest{Tools: []string{"run_command"}}); err != nil {
		t.Errorf("one principal's turns stand in another's way: %v", err)
	}
	if _, err := b.turns(b.Caller("ada")).EndTurn(t.Context(), &registryv1.EndTurnRequest{Turn: big.GetId()}); err != nil {
		t.Fatal(err)
	}
	b.open(t, &registryv1.OpenTurnRequest{Tools: []string{"run_command"}})
}

// The registry alone: no mcp-host, no permission service. What can't be had is said, and nothing is loosened.
func TestAloneTheRegistryIsManual(t *testing.T) {
	b := &bench{host: newHost(), settings: newSettings(), cards: &fakeCards{}}
	b.start(t, registry.Config{}, registry.WithClients(registry.Clients{}))
	b.add(t, "fs")
	turn := b.open(t, &registryv1.OpenTurnRequest{})
	if turn.GetMode() != commonv1.Mode_MODE_MANUAL || !slices.Equal(ids(turn), []string{"run_command"}) || len(turn.GetProblems()) != 1 {
		t.Errorf("%v", turn)
	}
	_, err := b.turns(b.Caller("ada")).OpenTurn(t.Context(), &registryv1.OpenTurnRequest{Mode: commonv1.Mode_MODE_AUTO})
	refused(t, err, "MODE_NOT_ALLOWED")
	if _, err := b.turns(b.Caller("ada")).EndTurn(t.Context(), &registryv1.EndTurnRequest{Turn: turn.GetId()}); err != nil {
		t.Error(err)
	}
}

// A caller that goes away leaves no turn behind and says nothing of the server.
func TestACallerThatGoesAway(t *testing.T) {
	b := newBench(t, registry.Config{})
	b.host.silent["slow"] = true
	b.add(t, "slow")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := b.turns(b.Caller("ada")).OpenTurn(ctx, &registryv1.OpenTurnRequest{})
		done <- err
	}()
	eventually(t, "the server is asked", func() bool { return b.host.discovered("slow") == 1 })
	cancel()
	if err := <-done; status.Code(err) != codes.Canceled && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	list, err := b.turns(b.Caller("ada")).ListTurns(t.Context(), &registryv1.ListTurnsRequest{})
	if err != nil || len(list.GetTurns()) != 0 {
		t.Errorf("%v %v", list, err)
	}
	got, err := registryv1.NewConnectorServiceClient(b.Operator("olga")).GetConnector(t.Context(), &registryv1.GetConnectorRequest{Name: "slow"})
	if err != nil || got.GetConnector().GetState() != registryv1.ConnectorState_CONNECTOR_STATE_READY {
		t.Errorf("%v %v", got, err)
	}
}
