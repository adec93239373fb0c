package gateway_test

import (
	"testing"

	gateway "github.com/writ-dev/writ/gateway-svc"
	"github.com/writ-dev/writ/gateway-svc/gatewaytest"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
)

// What the door itself costs: one read before peers in memory, over the in-process channel.
func BenchmarkCall(b *testing.B) {
	plane := gatewaytest.NewPlane()
	b.Cleanup(plane.Close)
	turn := plane.OpenTurn("alice")
	srv := gatewaytest.Start(b, gateway.Config{}, plane)
	calls := srv.Calls(srv.Caller("alice"))
	b.ReportAllocs()
	for b.Loop() {
		in, err := calls.CallTool(b.Context(), &gatewayv1.CallToolRequest{Turn: turn, Tool: gatewaytest.Read, Arguments: []byte(`{"text":"hello"}`)})
		for err == nil {
			var m *gatewayv1.CallToolResponse
			if m, err = in.Recv(); err == nil && m.GetEvent().GetOutcome() != nil {
				break
			}
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
