package permission_test

import (
	"fmt"
	"testing"

	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	permission "github.com/writ-dev/writ/permission-svc"
	"github.com/writ-dev/writ/permission-svc/permissiontest"
)

// BenchmarkAuthorize is a call that runs without a card: on the path of every call, and without a commit of its own.
func BenchmarkAuthorize(b *testing.B) {
	s := permissiontest.Start(b, permission.Config{})
	if _, err := permissionv1.NewSettingsServiceClient(s.Approver("alice")).UpdateSettings(b.Context(), &permissionv1.UpdateSettingsRequest{Settings: &permissionv1.Settings{ModeCap: bypass}}); err != nil {
		b.Fatal(err)
	}
	s.Registry.Open(permissiontest.Turn("t_1", bypass, permissiontest.MCPTool("read_file")))
	c := permissionv1.NewAuthorizationServiceClient(s.Caller("bot"))
	for i := 0; b.Loop(); i++ {
		r, err := c.Authorize(b.Context(), &permissionv1.AuthorizeRequest{Turn: "t_1", Call: fmt.Sprint("c", i), Tool: "mcp.fs.read_file", Arguments: []byte(`{"path":"a"}`)})
		if err != nil || r.GetAllowed() == nil {
			b.Fatal(r, err)
		}
	}
}
