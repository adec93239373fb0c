package auth_test

import (
	"slices"
	"strings"
	"testing"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	_ "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	_ "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	_ "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	_ "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	_ "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	_ "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
)

// Every method of every contract of ours is in the table, with somebody who may call it.
func TestTheTableIsWhole(t *testing.T) {
	entries, err := auth.Table()
	if err != nil {
		t.Error(err)
	}
	services := map[string]bool{}
	for _, e := range entries {
		services[strings.Split(e.Method, ".")[1]] = true
	}
	for _, name := range []string{"common", "registry", "permission", "mcphost", "exec", "evidence", "gateway"} {
		if !services[name] {
			t.Errorf("no method of %s is in the table", name)
		}
	}
}

// What only an approver may do, a person does with a credential of their own (R50; design, Trust 2); and nothing that
// changes a provider, a setting or a grant is open to an agent or to a service in between.
func TestDecidingIsForPeople(t *testing.T) {
	entries, err := auth.Table()
	if err != nil {
		t.Fatal(err)
	}
	deciding := []string{"Decide", "Grant", "Revoke", "Set", "Update", "Create", "Delete", "Install", "Enable", "Import"}
	for _, e := range entries {
		r := e.Rule
		method := e.Method[strings.LastIndex(e.Method, "/")+1:]
		decides := slices.ContainsFunc(deciding, func(p string) bool { return strings.HasPrefix(method, p) })
		if slices.Equal(r.GetRoles(), []commonv1.Role{approver}) {
			decides = true
		}
		if !decides {
			continue
		}
		if r.GetAnyone() || !r.GetOwnCredential() || !slices.Equal(r.GetKinds(), []commonv1.PrincipalKind{human}) ||
			slices.Contains(r.GetRoles(), caller) || slices.Contains(r.GetRoles(), service) {
			t.Errorf("%v", e)
		}
	}
}
