package inproc_test

import (
	"context"
	"testing"

	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/testkit"
)

// BenchmarkHop is one call between two services of a process, with everything on.
func BenchmarkHop(b *testing.B) {
	ch, _ := testkit.Channel(b)
	permissionv1.RegisterAuthorizationServiceServer(ch, &authority{authorize: func(context.Context, *permissionv1.AuthorizeRequest) error { return nil }})
	c := permissionv1.NewAuthorizationServiceClient(ch.As("gateway"))
	r := request()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Authorize(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}
