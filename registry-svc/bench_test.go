package registry_test

import (
	"fmt"
	"testing"

	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	registry "github.com/writ-dev/writ/registry-svc"
	"github.com/writ-dev/writ/registry-svc/registrytest"
)

// BenchmarkResolve is what every call pays to the registry, over the in-process channel.
func BenchmarkResolve(b *testing.B) {
	host := newHost()
	var pairs []string
	for i := range 100 {
		pairs = append(pairs, fmt.Sprintf("tool-%d", i), tool("x"))
	}
	host.tools("fs", pairs...)
	s := registrytest.Start(b, registry.Config{}, registry.WithClients(registry.Clients{Servers: host, Settings: newSettings()}))
	if _, err := registryv1.NewConnectorServiceClient(s.Operator("olga")).CreateConnector(b.Context(), &registryv1.CreateConnectorRequest{Connector: stdio("fs")}); err != nil {
		b.Fatal(err)
	}
	res, err := registryv1.NewTurnServiceClient(s.Caller("ada")).OpenTurn(b.Context(), &registryv1.OpenTurnRequest{})
	if err != nil {
		b.Fatal(err)
	}
	client := registryv1.NewResolverServiceClient(s.Service("permission"))
	req := &registryv1.ResolveRequest{Turn: res.GetTurn().GetId(), Tool: "fs__tool-7", Namespace: "default"}
	for b.Loop() {
		if _, err := client.Resolve(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpenTurn is what every reply of an agent pays, with 100 tools that did not change.
func BenchmarkOpenTurn(b *testing.B) {
	host := newHost()
	var pairs []string
	for i := range 100 {
		pairs = append(pairs, fmt.Sprintf("tool-%d", i), awkward)
	}
	host.tools("fs", pairs...)
	s := registrytest.Start(b, registry.Config{Limits: registry.Limits{OpenTurns: 1 << 30}}, registry.WithClients(registry.Clients{Servers: host, Settings: newSettings()}))
	if _, err := registryv1.NewConnectorServiceClient(s.Operator("olga")).CreateConnector(b.Context(), &registryv1.CreateConnectorRequest{Connector: stdio("fs")}); err != nil {
		b.Fatal(err)
	}
	client := registryv1.NewTurnServiceClient(s.Caller("ada"))
	for b.Loop() {
		if _, err := client.OpenTurn(b.Context(), &registryv1.OpenTurnRequest{OmitDefinitions: true}); err != nil {
			b.Fatal(err)
		}
	}
}
