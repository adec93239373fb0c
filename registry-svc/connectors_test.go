package registry_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/errs"
	registry "github.com/writ-dev/writ/registry-svc"
)

func (b *bench) connectors() registryv1.ConnectorServiceClient {
	return registryv1.NewConnectorServiceClient(b.Operator("olga"))
}

func stdio(name string) *registryv1.Connector {
	return &registryv1.Connector{Name: name, Transport: registryv1.Transport_TRANSPORT_STDIO, Command: "npx", Args: []string{"-y", "pkg"}, Enabled: true}
}

// Trust 4, R2: adding is an operator's act; values of variables go to the host and come back to nobody.
func TestAnOperatorAddsAConnector(t *testing.T) {
	b := newBench(t, registry.Config{})
	in := stdio("fs")
	in.Env, in.WorkingFolder, in.IdleTimeoutSeconds = map[string]string{"TOKEN": "s3cret", "LANG": "C"}, "/srv", -1
	res, err := b.connectors().CreateConnector(t.Context(), &registryv1.CreateConnectorRequest{Connector: in})
	if err != nil {
		t.Fatal(err)
	}
	got := res.GetConnector()
	if len(got.GetEnv()) != 0 || !slices.Equal(got.GetEnvNames(), []string{"LANG", "TOKEN"}) || got.GetState() != registryv1.ConnectorState_CONNECTOR_STATE_READY ||
		got.GetProviderDigest() != "digest-fs" || got.GetSource() != registryv1.Source_SOURCE_CONFIGURATION || got.GetCreatedBy().GetId() != "olga" || got.GetCreateTime() == nil {
		t.Errorf("%v", got)
	}
	if spec := b.host.last("fs"); spec.GetEnv()["TOKEN"] != "s3cret" || spec.GetNamespace() != "default" || spec.GetIdleTimeoutSeconds() != -1 || !spec.GetEnabled() {
		t.Errorf("the host has %v", spec)
	}
	if b.host.discovered("fs") != 0 {
		t.Error("adding started it (R60)")
	}
	// A caller sees that it is there, and not what people tend to put secrets into.
	seen, err := registryv1.NewConnectorServiceClient(b.Caller("ada")).GetConnector(t.Context(), &registryv1.GetConnectorRequest{Name: "fs"})
	if err != nil || strings.Contains(seen.String(), "s3cret") || len(seen.GetConnector().GetArgs()) != 0 || len(seen.GetConnector().GetEnvNames()) != 0 {
		t.Errorf("%v %v", seen, err)
	}
	caller := registryv1.NewConnectorServiceClient(b.Caller("ada"))
	_, err = caller.CreateConnector(t.Context(), &registryv1.CreateConnectorRequest{Connector: stdio("evil")})
	refused(t, err, "ACCESS_DENIED")
	_, err = caller.SetConnectorEnabled(t.Context(), &registryv1.SetConnectorEnabledRequest{Name: "fs"})
	refused(t, err, "ACCESS_DENIED")
	_, err = caller.GetConnectorLogs(t.Context(), &registryv1.GetConnectorLogsRequest{Name: "fs"})
	refused(t, err, "ACCESS_DENIED")
	logs, err := b.connectors().GetConnectorLogs(t.Context(), &registryv1.GetConnectorLogsRequest{Name: "fs"})
	if err != nil || logs.GetNoiseLines() != 3 || len(logs.GetLines()) != 1 {
		t.Errorf("%v %v", logs, err)
	}
}

// R10: of many who register a name at once exactly one does; the others are told, and the log has it.
func TestTheFirstRegistrationStays(t *testing.T) {
	var log safeBuffer
	b := newBench(t, registry.Config{}, registry.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	var wg sync.WaitGroup
	won := make(chan string, 10)
	for i := range 10 {
		wg.Go(func() {
			c := stdio("fs")
			c.Command = fmt.Sprintf("program-%d", i)
			_, err := b.connectors().CreateConnector(t.Context(), &registryv1.CreateConnectorRequest{Connector: c})
			if err == nil {
				won <- c.GetCommand()
				return
			}
			refused(t, err, "CONNECTOR_EXISTS")
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("%d won", len(won))
	}
	winner := <-won
	got, err := b.connectors().GetConnector(t.Context(), &registryv1.GetConnectorRequest{Name: "fs"})
	if err != nil || got.GetConnector().GetCommand() != winner || b.host.last("fs").GetCommand() != winner {
		t.Errorf("%v: %s won, %v is there", err, winner, got)
	}
	if n := strings.Count(log.String(), "registry.plugin_collision"); n != 9 || !strings.Contains(log.String(), "policy=keep_first") {
		t.Errorf("%d collisions in the log", n)
	}
}

func TestABadConnectorIsRefusedWithItsField(t *testing.T) {
	b := newBench(t, registry.Config{Limits: registry.Limits{Connectors: 2}, Variables: map[string]map[string]string{"bound": {"KEY": "v"}}})
	with := func(change func(*registryv1.Connector)) *registryv1.Connector {
		c := stdio("fs")
		change(c)
		return c
	}
	for _, c := range []struct {
		in            *registryv1.Connector
		reason, field string
	}{
		{with(func(c *registryv1.Connector) { c.Name = "builtin" }), "NAME_RESERVED", "connector.name"},
		{with(func(c *registryv1.Connector) { c.Name = "a.b" }), "FIELD_INVALID", "connector.name"},
		{with(func(c *registryv1.Connector) { c.Name = strings.Repeat("a", 33) }), "FIELD_INVALID", "connector.name"},
		{with(func(c *registryv1.Connector) { c.Transport = 0 }), "FIELD_INVALID", "connector.transport"},
		{with(func(c *registryv1.Connector) { c.Command = "" }), "FIELD_INVALID", "connector.command"},
		{with(func(c *registryv1.Connector) { c.Command = "sh -c x" }), "FIELD_INVALID", "connector.command"},
		{with(func(c *registryv1.Connector) { c.Url = "https://x/" }), "FIELD_INVALID", "connector.url"},
		{with(func(c *registryv1.Connector) { c.Args = []string{"a\x00b"} }), "FIELD_INVALID", "connector.args[0]"},
		{with(func(c *registryv1.Connector) { c.Env = map[string]string{"A=B": ""} }), "FIELD_INVALID", `connector.env."A=B"`},
		{with(func(c *registryv1.Connector) { c.Args = []string{"${KEY}"} }), "VARIABLE_NOT_BOUND", "connector.args[0]"},
		{with(func(c *registryv1.Connector) { c.IdleTimeoutSeconds = -2 }), "FIELD_INVALID", "connector.idle_timeout_seconds"},
	} {
		_, err := b.connectors().CreateConnector(t.Context(), &registryv1.CreateConnectorRequest{Connector: c.in})
		if m := refused(t, err, c.reason); m["field"] != c.field {
			t.Errorf("%v: %v", c.in, m)
		}
	}
	in := stdio("bound")
	in.Args = []string{"--key=${KEY}"}
	if _, err := b.connectors().CreateConnector(t.Context(), &registryv1.CreateConnectorRequest{Connector: in}); err != nil {
		t.Fatal(err)
	}
	if got := b.host.last("bound").GetArgs(); !slices.Equal(got, []string{"--key=v"}) {
		t.Errorf("%q", got)
	}
	b.add(t, "second")
	_, err := b.connectors().CreateConnector(t.Context(), &registryv1.CreateConnectorRequest{Connector: stdio("third")})
	if m := refused(t, err, "LIMIT_EXCEEDED"); m["limit_name"] != "connectors_max" {
		t.Errorf("%v", m)
	}
}

// R57: disabling and removing reach the host, and turns and calls at once.
func TestDisablingAndRemovingReachEverybody(t *testing.T) {
	b := newBench(t, registry.Config{})
	b.host.tools("fs", "read", tool("read"))
	b.add(t, "fs")
	turn := b.open(t, &registryv1.OpenTurnRequest{})
	check := func(enabled bool, digest string) {
		t.Helper()
		res, err := b.resolve(t, turn.GetId(), "fs__read")
		if err != nil || res.GetProviderEnabled() != enabled || res.GetCurrentProviderDigest() != digest || res.GetExecutor() != "mcp-host" ||
			res.GetTool().GetTool().GetIdentity().GetProviderDigest() != "digest-fs" {
			t.Errorf("%v %v", res, err)
		}
	}
	check(true, "digest-fs")
	res, err := b.connectors().SetConnectorEnabled(t.Context(), &registryv1.SetConnectorEnabledRequest{Name: "fs"})
	if err != nil || res.GetConnector().GetState() != registryv1.ConnectorState_CONNECTOR_STATE_DISABLED || b.host.last("fs").GetEnabled() {
		t.Errorf("%v %v", res, err)
	}
	check(false, "")
	if next := b.open(t, &registryv1.OpenTurnRequest{}); slices.Contains(ids(next), "mcp.fs.read") || len(next.GetProblems()) != 0 {
		t.Errorf("%v", next)
	}
	// What is started changes: the frozen digest stays, the current one is the new one.
	b.host.do(func() { b.host.digests["fs"] = "other" })
	if _, err := b.connectors().SetConnectorEnabled(t.Context(), &registryv1.SetConnectorEnabledRequest{Name: "fs", Enabled: true}); err != nil {
		t.Fatal(err)
	}
	check(true, "other")
	if _, err := b.connectors().DeleteConnector(t.Context(), &registryv1.DeleteConnectorRequest{Name: "fs"}); err != nil {
		t.Fatal(err)
	}
	check(false, "")
	if !slices.Contains(b.host.removed, "fs") {
		t.Error("the host still has it")
	}
	for _, err := range []error{
		second(b.connectors().DeleteConnector(t.Context(), &registryv1.DeleteConnectorRequest{Name: "fs"})),
		second(b.connectors().GetConnector(t.Context(), &registryv1.GetConnectorRequest{Name: "fs"})),
		second(b.connectors().TestConnector(t.Context(), &registryv1.TestConnectorRequest{Name: "fs"})),
		second(b.connectors().SetConnectorEnabled(t.Context(), &registryv1.SetConnectorEnabledRequest{Name: "fs", Enabled: true})),
		second(b.connectors().GetConnectorLogs(t.Context(), &registryv1.GetConnectorLogsRequest{Name: "fs"})),
	} {
		refused(t, err, "CONNECTOR_NOT_FOUND")
	}
	b.host.do(func() { b.host.removed = nil })
	b.add(t, "fs")
	if b.host.last("fs") == nil {
		t.Error("a name that was freed can't be used again")
	}
}

func second[T any](_ T, err error) error { return err }

// A host that is down is told later; meanwhile a disabled connector is disabled for every turn and call.
func TestAHostThatIsDownIsToldLater(t *testing.T) {
	b := newBench(t, registry.Config{})
	b.host.tools("fs", "read", tool("read"))
	b.add(t, "fs", "gone")
	turn := b.open(t, &registryv1.OpenTurnRequest{})
	b.host.do(func() { b.host.down = status.Error(codes.Unavailable, "connection refused") })
	_, err := b.connectors().SetConnectorEnabled(t.Context(), &registryv1.SetConnectorEnabledRequest{Name: "fs"})
	refused(t, err, "PEER_UNAVAILABLE")
	_, err = b.connectors().DeleteConnector(t.Context(), &registryv1.DeleteConnectorRequest{Name: "gone"})
	refused(t, err, "PEER_UNAVAILABLE")
	if res, err := b.resolve(t, turn.GetId(), "mcp.fs.read"); err != nil || res.GetProviderEnabled() {
		t.Errorf("%v %v", res, err)
	}
	created, err := b.connectors().CreateConnector(t.Context(), &registryv1.CreateConnectorRequest{Connector: stdio("new")})
	if err != nil || created.GetConnector().GetState() != registryv1.ConnectorState_CONNECTOR_STATE_ERROR || created.GetConnector().GetProblem() == "" {
		t.Errorf("%v %v", created, err)
	}
	b.host.do(func() { b.host.down = nil })
	eventually(t, "the host hears of all three", func() bool {
		b.host.mu.Lock()
		removed := slices.Contains(b.host.removed, "gone")
		b.host.mu.Unlock()
		fs := b.host.last("fs")
		return removed && fs != nil && !fs.GetEnabled() && b.host.last("new") != nil
	})
	eventually(t, "the problem is gone", func() bool {
		got, err := b.connectors().GetConnector(t.Context(), &registryv1.GetConnectorRequest{Name: "new"})
		return err == nil && got.GetConnector().GetState() == registryv1.ConnectorState_CONNECTOR_STATE_READY
	})
}

// Trust 3: that a server runs without isolation is accepted for what is started now, and for nothing else.
func TestHostIsolationIsAcceptedForOneDigest(t *testing.T) {
	store := filepath.Join(t.TempDir(), "registry.db")
	b := newBench(t, registry.Config{StorePath: store})
	in := stdio("fs")
	in.AcceptHostIsolation = true
	if _, err := b.connectors().CreateConnector(t.Context(), &registryv1.CreateConnectorRequest{Connector: in}); err != nil {
		t.Fatal(err)
	}
	if got := b.host.last("fs").GetHostIsolationAcceptedFor(); got != "digest-fs" {
		t.Errorf("accepted for %q", got)
	}
	b.Stop()
	b.host.do(func() { b.host.digests["fs"] = "changed" })
	b.start(t, registry.Config{StorePath: store})
	if _, err := b.connectors().SetConnectorEnabled(t.Context(), &registryv1.SetConnectorEnabledRequest{Name: "fs", Enabled: true}); err != nil {
		t.Fatal(err)
	}
	if got := b.host.last("fs").GetHostIsolationAcceptedFor(); got != "digest-fs" {
		t.Errorf("the acceptance moved to %q", got)
	}
}

// R64, field reports: a test is an answer also when the server does not work.
func TestTestingAConnectorSaysWhatItFound(t *testing.T) {
	b := newBench(t, registry.Config{})
	b.host.tools("fs", "read", `{"name":"read","annotations":{"readOnlyHint":true}}`, "write", tool("write"))
	b.host.failing["dead"] = startFailed("dead")
	b.host.failing["linear"] = errs.New(codes.FailedPrecondition, mcphostv1.ErrorReason_ERROR_REASON_NEEDS_AUTHENTICATION, "linear", "it wants a sign-in", "Sign in.")
	b.add(t, "fs", "dead", "linear")
	b.host.do(func() {
		b.host.sessions = []*mcphostv1.Session{
			{Server: "fs", Namespace: "default", State: "ready"}, {Server: "dead", Namespace: "default", State: "closing"}, {Server: "linear", Namespace: "other", State: "ready"},
		}
	})
	test := func(name string) *registryv1.TestConnectorResponse {
		t.Helper()
		res, err := b.connectors().TestConnector(t.Context(), &registryv1.TestConnectorRequest{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if r := test("fs"); r.GetConnector().GetState() != registryv1.ConnectorState_CONNECTOR_STATE_CONNECTED || r.GetConnector().GetToolCount() != 2 ||
		r.GetReadOnlyHints() != 1 || r.GetConnector().GetServerVersion() != "fs 1.2.3" || !strings.Contains(r.GetIsolation(), "guarded, network open") {
		t.Errorf("%v", r)
	}
	b.host.do(func() {
		if !b.host.asked[0].GetRefresh() {
			t.Error("a known listing was taken for a test")
		}
	})
	if r := test("dead"); r.GetConnector().GetState() != registryv1.ConnectorState_CONNECTOR_STATE_ERROR || !strings.Contains(r.GetConnector().GetProblem(), "boom") {
		t.Errorf("%v", r)
	}
	if r := test("linear"); r.GetConnector().GetState() != registryv1.ConnectorState_CONNECTOR_STATE_NEEDS_AUTHENTICATION {
		t.Errorf("%v", r)
	}
	plugins, err := registryv1.NewToolServiceClient(b.Caller("ada")).ListPlugins(t.Context(), &registryv1.ListPluginsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, p := range plugins.GetPlugins() {
		rows = append(rows, fmt.Sprintf("%s %s %s %v %d", p.GetKind(), p.GetId(), p.GetVersion(), p.GetSource(), p.GetTools()))
	}
	want := []string{"tool builtin  SOURCE_BUILTIN 36", "mcp dead  SOURCE_CONFIGURATION 0", "mcp fs fs 1.2.3 SOURCE_CONFIGURATION 2", "mcp linear  SOURCE_CONFIGURATION 0"}
	if !slices.Equal(rows, want) { // R11
		t.Errorf("%q", rows)
	}
}

// R15, R16, ruling 1: the file's good entries are there; a bad one is an error in the log and a connector that says what
// is wrong; the rest goes on; and no RPC changes what the file sets.
func TestTheConfigurationFile(t *testing.T) {
	dir := t.TempDir()
	file, store := filepath.Join(dir, "mcp.json"), filepath.Join(dir, "registry.db")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"servers": {
  "fs": {"transport": "stdio", "command": "npx", "args": ["x"], "env": {"T": "${TOKEN}"}},
  "typo": {"transport": "stdio", "comand": "npx"},
  "mine": {"command": "from-the-file"}}}`)
	var log safeBuffer
	cfg := registry.Config{StorePath: store, MCPFile: file, Variables: map[string]map[string]string{"fs": {"TOKEN": "s3cret"}}}
	b := newBench(t, cfg, registry.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	b.host.tools("fs", "read", tool("read"))
	eventually(t, "the host is told at the start", func() bool { return b.host.last("fs") != nil && b.host.last("mine") != nil })
	if got := b.host.last("fs").GetEnv()["T"]; got != "s3cret" {
		t.Errorf("%q", got)
	}
	list, err := b.connectors().ListConnectors(t.Context(), &registryv1.ListConnectorsRequest{})
	if err != nil || len(list.GetConnectors()) != 3 || strings.Contains(list.String(), "s3cret") {
		t.Fatalf("%v %v", list, err)
	}
	bad := list.GetConnectors()[2]
	if bad.GetName() != "typo" || bad.GetState() != registryv1.ConnectorState_CONNECTOR_STATE_ERROR || !strings.Contains(bad.GetProblem(), file+":3:44: typo: comand:") {
		t.Errorf("%v", bad)
	}
	if !strings.Contains(log.String(), "registry.configuration_invalid") {
		t.Error("the log is silent")
	}
	turn := b.open(t, &registryv1.OpenTurnRequest{})
	if !slices.Contains(ids(turn), "mcp.fs.read") || len(turn.GetProblems()) != 1 || errs.ReasonOf(status.FromProto(turn.GetProblems()[0].GetStatus()).Err()) != "CONFIGURATION_INVALID" {
		t.Errorf("%v", turn)
	}
	for _, err := range []error{
		second(b.connectors().SetConnectorEnabled(t.Context(), &registryv1.SetConnectorEnabledRequest{Name: "fs"})),
		second(b.connectors().DeleteConnector(t.Context(), &registryv1.DeleteConnectorRequest{Name: "typo"})),
	} {
		if m := refused(t, err, "CONFIGURED_IN_FILE"); !strings.Contains(m["file"], file) {
			t.Errorf("%v", m)
		}
	}
	_, err = b.connectors().CreateConnector(t.Context(), &registryv1.CreateConnectorRequest{Connector: stdio("mine")})
	refused(t, err, "CONNECTOR_EXISTS")

	// The next start has another file: what is gone is removed at the host, and a name that was taken meanwhile stays taken.
	b.Stop()
	write(`{"mcpServers": {"typo": {"command": "npx"}}}`)
	b.start(t, cfg)
	b.add(t, "mine")
	eventually(t, "the host forgets what is gone", func() bool { return b.host.last("fs") == nil && b.host.last("typo") != nil })
	b.Stop()
	write(`{"mcpServers": {"mine": {"command": "from-the-file"}}}`)
	b.host.do(func() { b.host.removed = nil })
	b.start(t, cfg)
	got, err := b.connectors().GetConnector(t.Context(), &registryv1.GetConnectorRequest{Name: "mine"})
	if err != nil || got.GetConnector().GetCommand() != "true" || got.GetConnector().GetConfiguredIn() != "" {
		t.Errorf("%v %v", got, err)
	}

	// A file that can't be read at all is seen where connectors are looked at.
	b.Stop()
	write(`{"servers": `)
	b.start(t, cfg)
	list, err = b.connectors().ListConnectors(t.Context(), &registryv1.ListConnectorsRequest{})
	if err != nil || len(list.GetConnectors()) != 2 || list.GetConnectors()[0].GetName() != "mcp.json" || list.GetConnectors()[0].GetState() != registryv1.ConnectorState_CONNECTOR_STATE_ERROR {
		t.Errorf("%v %v", list, err)
	}
}

// A variable that is bound no more keeps the connector from running with the old value.
func TestAVariableThatIsUnboundLater(t *testing.T) {
	store := filepath.Join(t.TempDir(), "registry.db")
	b := newBench(t, registry.Config{StorePath: store, Variables: map[string]map[string]string{"fs": {"KEY": "v"}}})
	in := stdio("fs")
	in.Env = map[string]string{"K": "${KEY}"}
	if _, err := b.connectors().CreateConnector(t.Context(), &registryv1.CreateConnectorRequest{Connector: in}); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	b.start(t, registry.Config{StorePath: store})
	eventually(t, "the host forgets it", func() bool { return b.host.last("fs") == nil })
	eventually(t, "the problem is shown", func() bool {
		got, err := b.connectors().GetConnector(t.Context(), &registryv1.GetConnectorRequest{Name: "fs"})
		return err == nil && got.GetConnector().GetState() == registryv1.ConnectorState_CONNECTOR_STATE_ERROR && strings.Contains(got.GetConnector().GetProblem(), "KEY")
	})
}

// R16: validation says everything at once and changes nothing.
func TestValidateConfiguration(t *testing.T) {
	b := newBench(t, registry.Config{})
	res, err := b.connectors().ValidateConfiguration(t.Context(), &registryv1.ValidateConfigurationRequest{
		Path: "my.json", Content: []byte(`{"ok": {"command": "npx", "env": {"A": "secret"}}, "a": {"comand": 1}, "b": {"url": 3, "x": 1}}`),
	})
	if err != nil || len(res.GetConnectors()) != 1 || len(res.GetConnectors()[0].GetEnv()) != 0 || len(res.GetProblems()) != 4 {
		t.Fatalf("%v %v", res, err)
	}
	for _, p := range res.GetProblems() {
		if !strings.HasPrefix(p, "my.json:1:") {
			t.Errorf("%q", p)
		}
	}
	list, err := b.connectors().ListConnectors(t.Context(), &registryv1.ListConnectorsRequest{})
	if err != nil || len(list.GetConnectors()) != 0 {
		t.Errorf("%v %v", list, err)
	}
	_, err = registryv1.NewConnectorServiceClient(b.Caller("ada")).ValidateConfiguration(t.Context(), &registryv1.ValidateConfigurationRequest{})
	refused(t, err, "ACCESS_DENIED")
}

// R1, R11, R12, R34: what exists is listed page by page, from the last listings, without starting anything.
func TestToolsAreListedFromMemory(t *testing.T) {
	store := filepath.Join(t.TempDir(), "registry.db")
	b := newBench(t, registry.Config{StorePath: store})
	b.host.tools("a", "zeta", tool("zeta"), "count", awkward)
	b.host.tools("b", "one", tool("one"))
	b.add(t, "a", "b")
	b.open(t, &registryv1.OpenTurnRequest{})
	b.Stop()
	b.host.do(func() { b.host.asked = nil })
	b.start(t, registry.Config{StorePath: store})
	client := registryv1.NewToolServiceClient(b.Caller("ada"))
	for _, size := range []int32{1, 5, 36, 37, 1000} {
		var got []*registryv1.Tool
		token := ""
		for {
			res, err := client.ListTools(t.Context(), &registryv1.ListToolsRequest{PageSize: size, PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			if len(res.GetTools()) > int(size) {
				t.Fatalf("a page of %d", len(res.GetTools()))
			}
			got = append(got, res.GetTools()...)
			if token = res.GetNextPageToken(); token == "" {
				break
			}
		}
		var names []string
		for _, x := range got {
			names = append(names, x.GetIdentity().GetTool())
		}
		if len(names) != 39 || names[0] != "read_file" || !slices.Equal(names[36:], []string{"mcp.a.count", "mcp.a.zeta", "mcp.b.one"}) {
			t.Fatalf("in pages of %d: %v", size, names)
		}
		if !bytes.Equal(got[36].GetDefinition(), []byte(awkward)) || got[36].GetIdentity().GetProviderDigest() != "digest-a" {
			t.Errorf("%v", got[36])
		}
		if got[8].GetName() != "run_command" || got[8].GetLane() != commonv1.Lane_LANE_BUILTIN || got[8].GetClass() != commonv1.SecurityClass_SECURITY_CLASS_PROCESS {
			t.Errorf("%v", got[8])
		}
	}
	first, err := client.ListTools(t.Context(), &registryv1.ListToolsRequest{PageSize: 1, Provider: "mcp.a"})
	if err != nil || len(first.GetTools()) != 1 || first.GetNextPageToken() == "" {
		t.Fatalf("%v %v", first, err)
	}
	_, err = client.ListTools(t.Context(), &registryv1.ListToolsRequest{PageSize: 1, Provider: "mcp.b", PageToken: first.GetNextPageToken()})
	refused(t, err, "PAGE_TOKEN_INVALID")
	_, err = client.ListTools(t.Context(), &registryv1.ListToolsRequest{PageToken: "nonsense"})
	refused(t, err, "PAGE_TOKEN_INVALID")
	if len(b.host.asked) != 0 {
		t.Error("listing started a server")
	}
}

// safeBuffer is a log that many may write.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
