// Package layout holds the rules of design.md about who imports whom, and about the access table.
package layout

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "github.com/writ-dev/writ/gen/go/writ/common/v1" // linked, so that auth.Table sees every service
	_ "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	_ "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	_ "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	_ "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	_ "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	_ "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
)

const prefix = "github.com/writ-dev/writ/"

// services are the modules of the six services.
func services() []string {
	return []string{"registry-svc", "permission-svc", "mcp-host-svc", "exec-svc", "evidence-svc", "gateway-svc"}
}

// mayImport lists, for each module, the modules of ours that it may import: gen/go <- clients/go <- internal <- the
// services <- cmd/writ. A service never imports another service.
func mayImport() map[string][]string {
	below := []string{"gen/go", "clients/go", "internal"}
	rules := map[string][]string{
		"gen/go":     {},
		"clients/go": {"gen/go"},
		"internal":   {"gen/go", "clients/go"},
		"cmd/writ":   append(services(), below...),
		"examples":   {},
	}
	for _, s := range services() {
		rules[s] = below
	}
	return rules
}

type pkg struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

// packages lists every package of a module. Tests count as the package: what needs two services belongs to e2e.
func packages(t *testing.T, module string) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = filepath.Join("..", "..", module)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("%s: %v\n%s", module, err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var list []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	if len(list) == 0 {
		t.Fatalf("%s has no packages: the rules were held against nothing", module)
	}
	return list
}

// moduleOf is the module of ours that a package belongs to, "" for others'.
func moduleOf(path string) string {
	rest, ours := strings.CutPrefix(path, prefix)
	if !ours {
		return ""
	}
	first, tail, _ := strings.Cut(rest, "/")
	if first == "gen" || first == "clients" || first == "cmd" {
		second, _, _ := strings.Cut(tail, "/")
		return first + "/" + second
	}
	return first
}

// Design, "Who may import whom".
func TestImportsPointDownwards(t *testing.T) {
	for module, may := range mayImport() {
		for _, p := range packages(t, module) {
			for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
				of := moduleOf(imported)
				if of == "" || of == module || slices.Contains(may, of) {
					continue
				}
				t.Errorf("%s imports %s: module %s may import of ours only %v", p.ImportPath, imported, module, may)
			}
		}
	}
}

// Design: domain packages import no gRPC, SQL or OpenTelemetry. They speak the contracts' messages, and OTLP's.
func TestDomainsStandAlone(t *testing.T) {
	forbidden := []string{
		"google.golang.org/grpc", "database/sql", "modernc.org/sqlite", "go.opentelemetry.io/otel", "go.opentelemetry.io/contrib",
		prefix + "internal/server", prefix + "internal/inproc", prefix + "internal/telemetry", prefix + "internal/sqlitedb", prefix + "internal/errs",
	}
	for _, service := range services() {
		domains := 0
		for _, p := range packages(t, service) {
			concept, inside := strings.CutPrefix(p.ImportPath, prefix+service+"/internal/")
			if !inside || concept == "store" || strings.HasPrefix(concept, "store/") {
				continue
			}
			domains++
			for _, imported := range p.Imports {
				for _, f := range forbidden {
					if imported == f || strings.HasPrefix(imported, f+"/") {
						t.Errorf("%s imports %s: a domain package declares a port, the root package adapts it", p.ImportPath, imported)
					}
				}
			}
		}
		if domains == 0 {
			t.Errorf("%s has no folder for a concept under internal/", service)
		}
	}
}

// Every service has the same shape: a root package, a binary and a package for tests that embed it.
func TestServicesHaveOneShape(t *testing.T) {
	for _, service := range services() {
		var paths []string
		for _, p := range packages(t, service) {
			paths = append(paths, p.ImportPath)
		}
		for _, want := range []string{prefix + service, prefix + service + "/cmd/" + service} {
			if !slices.Contains(paths, want) {
				t.Errorf("%s has no package %s", service, want)
			}
		}
	}
}

// Trust 5: RPC x role x kind of identity is a table in the contracts, and no method stands without a rule. A caller's
// credential alone never decides, grants, changes settings, adds providers, or speaks to an executor.
func TestTheAccessTableIsComplete(t *testing.T) {
	table, err := auth.Table()
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]bool{}
	open := map[string]bool{}
	for _, e := range table {
		packages[strings.Split(e.Method, ".")[1]] = true
		for _, role := range e.Rule.GetRoles() {
			if role.String() == "ROLE_CALLER" {
				open[e.Method] = true
			}
		}
		if e.Rule.GetAnyone() {
			open[e.Method] = true
		}
	}
	for _, p := range []string{"common", "registry", "permission", "mcphost", "exec", "evidence", "gateway"} {
		if !packages[p] {
			t.Errorf("no method of writ.%s stands in the table", p)
		}
	}
	for _, closed := range []string{
		"/writ.permission.v1.CardService/DecideCard", "/writ.permission.v1.GrantService/RevokeGrant",
		"/writ.permission.v1.SettingsService/UpdateSettings", "/writ.permission.v1.SettingsService/SetDisposition",
		"/writ.registry.v1.ConnectorService/CreateConnector", "/writ.registry.v1.ConnectorService/SetConnectorEnabled",
		"/writ.registry.v1.ConnectorService/DeleteConnector", "/writ.registry.v1.ConnectorService/TestConnector",
		"/writ.mcphost.v1.ExecutionService/Execute", "/writ.mcphost.v1.ServerService/ApplyServer", "/writ.exec.v1.RunService/Execute",
		"/writ.evidence.v1.ClaimService/Claim", "/writ.evidence.v1.ReceiptService/Seal",
	} {
		if open[closed] {
			t.Errorf("a caller may call %s", closed)
		}
		if !slices.ContainsFunc(table, func(e auth.Entry) bool { return e.Method == closed }) {
			t.Errorf("%s is not in the table", closed)
		}
	}
}
