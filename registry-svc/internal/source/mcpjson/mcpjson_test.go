package mcpjson_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/writ-dev/writ/registry-svc/internal/connector"
	"github.com/writ-dev/writ/registry-svc/internal/source/mcpjson"
)

// R15: the sample of the source, and the two other shapes that are in the wild (mcp-facts 8), say the same thing.
func TestTheThreeShapesSayTheSame(t *testing.T) {
	want := []mcpjson.Entry{
		{Name: "fs", Enabled: true, Spec: connector.Spec{
			Transport: "stdio", Command: "npx", Args: []string{"-y", "@modelcontextprotocol/server-filesystem", "/srv/notes"},
			Env: map[string]string{"LANG": "C.UTF-8"}, WorkingFolder: "/srv",
		}},
		{Name: "remote", Enabled: true, Spec: connector.Spec{Transport: "http", URL: "https://mcp.example.org/mcp"}},
		{Name: "off", Enabled: false, Spec: connector.Spec{Transport: "stdio", Command: "/opt/my tool", IdleSeconds: -1}},
	}
	const entries = `
		"fs": {"%[1]s": "stdio", "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv/notes"],
		       "env": {"LANG": "C.UTF-8"}, "cwd": "/srv"},
		"remote": {"%[1]s": "http", "url": "https://mcp.example.org/mcp"},
		"off": {"command": "/opt/my tool", "disabled": true, "idle_timeout_seconds": 0}`
	for name, text := range map[string]string{
		"source":  `{"servers": {` + fmt.Sprintf(entries, "transport") + `}}`,
		"vs code": `{"inputs": [{"id": "token", "type": "promptString"}], "servers": {` + fmt.Sprintf(entries, "type") + `}}`,
		"claude":  `{"mcpServers": {` + fmt.Sprintf(entries, "type") + `}}`,
		"plugins": `{"$schema": "https://agent-plugins.org/x.json", "mcpServers": {` + strings.Replace(fmt.Sprintf(entries, "type"), `"http"`, `"streamable-http"`, 1) + `}}`,
		"flat":    `{` + fmt.Sprintf(entries, "type") + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			got := mcpjson.Read("mcp.json", []byte(text), nil)
			if len(got.Problems) > 0 {
				t.Fatal(got.Problems)
			}
			for i := range got.Entries {
				if !strings.HasSuffix(got.Entries[i].Place, got.Entries[i].Name) {
					t.Errorf("place %q", got.Entries[i].Place)
				}
				got.Entries[i].Place = ""
			}
			if d := cmp.Diff(want, got.Entries); d != "" {
				t.Error(d)
			}
		})
	}
}

// R16, ruling 1: a typo fails loudly, with file, entry, field, place and what to do.
func TestEveryMistakeIsNamedWithItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		`{"servers": {"fs": {"transport": "stdio", "comand": "npx"}}}`:        `f:1:53: fs: comand: is not a field that is known. Did you mean "command"?`,
		`{"servers": {"fs": {"trasport": "stdio", "command": "npx"}}}`:        `f:1:33: fs: trasport: is not a field that is known. Did you mean "transport"?`,
		"{\n  \"fs\": {\n    \"command\": \"npx\",\n    \"argz\": []\n  }\n}": `f:4:13: fs: argz: is not a field that is known. Did you mean "args"?`,
		`{"fs": {"transport": "stdoi", "command": "npx"}}`:                    `f:1:22: fs: transport: "stdoi" is not a transport. Did you mean "stdio"?`,
		`{"fs": {"type": "sse", "url": "https://x/"}}`:                        `f:1:17: fs: type: "sse" is a transport that is not spoken.`,
		`{"fs": {"type": "stdio", "transport": "http", "command": "x"}}`:      `f:1:39: fs: transport: says another transport than "type".`,
		`{"fs": {"command": ["npx"]}}`:                                        `f:1:20: fs: command: is an array. Write a string.`,
		`{"fs": {"command": "npx -y foo"}}`:                                   `f:1:20: fs: command: holds white space: it is one program, not a shell line.`,
		`{"fs": {"command": "npx", "args": "x"}}`:                             `f:1:35: fs: args: is a string. Write an array of strings.`,
		`{"fs": {"command": "npx", "args": ["a", 1]}}`:                        `f:1:41: fs: args[1]: is a number. Write a string.`,
		`{"fs": {"command": "npx", "env": {"PORT": 80}}}`:                     `f:1:43: fs: env.PORT: is a number. Write a string.`,
		`{"fs": {"command": "npx", "env": {"A-B": "x"}}}`:                     `is no name of a variable.`,
		`{"fs": {"command": "npx", "cwd": "here"}}`:                           `f:1:34: fs: working_folder: is not an absolute path.`,
		`{"fs": {"command": "npx", "enabled": "yes"}}`:                        `f:1:38: fs: enabled: is a string. Write true or false.`,
		`{"fs": {"command": "npx", "idle_timeout_seconds": 1.5}}`:             `fs: idle_timeout_seconds: is no whole number of seconds.`,
		`{"fs": {"command": "npx", "idle_timeout_seconds": -3}}`:              `fs: idle_timeout_seconds: is -3.`,
		`{"fs": {"command": "npx", "url": "https://x/"}}`:                     `f:1:34: fs: url: stands beside "command"`,
		`{"fs": {"type": "http", "url": "https://x/", "command": "npx"}}`:     `fs: command: stands beside the transport http`,
		`{"fs": {}}`:    `f:1:8: fs: has neither "command" nor "url".`,
		`{"fs": "npx"}`: `f:1:8: fs: is a string.`,
		`{"fs": {"type": "http", "url": "ftp://x/"}}`:                                     `fs: url: is not an http or https address.`,
		`{"fs": {"type": "http", "url": "http://10.0.0.9/mcp"}}`:                          `fs: url: is http to another machine`,
		`{"fs": {"type": "http", "url": "https://u:p@x/"}}`:                               `fs: url: holds a user name or password.`,
		`{"fs": {"type": "http", "url": "https://x/", "headers": {"A": "b"}}}`:            `fs: headers: is not followed. Headers can't be set here yet.`,
		`{"fs": {"command": "npx", "alwaysAllow": ["write_file"]}}`:                       `fs: alwaysAllow: is not followed. Nothing in this file grants anything`,
		`{"FS": {"command": "npx"}}`:                                                      `f:1:8: FS: this can't be a connector's name`,
		`{"builtin": {"command": "npx"}}`:                                                 `builtin: the name belongs to Writ.`,
		`{"fs": {"command": "a"}, "fs": {"command": "b"}}`:                                `fs: the name stands twice, so neither entry counts.`,
		`{"fs": {"command": "a", "command": "b"}}`:                                        `f:1:25: fs: duplicate`,
		`{"fs": {"command": "a", "env": {"K": "1", "\u004b": "2"}}}`:                      `fs: duplicate`,
		`{"servers": {}, "mcpServers": {}}`:                                               `mcpServers: stands beside "servers"`,
		`{"servers": {}, "permissions": {}}`:                                              `f:1:32: permissions: is not known beside "servers".`,
		`{"servers": []}`:                                                                 `f:1:13: servers: is an array.`,
		`[]`:                                                                              `an object is needed`,
		``:                                                                                `f:1:1: `,
		"{\n  // my servers\n  \"fs\": {}}":                                               `f:2:3: `,
		`{"fs": {"command": "npx",}}`:                                                     `f:1:26: `,
		`{"fs": {"command": "npx", "host_isolation_accepted_for": "yes"}}`:                `is no provider digest.`,
		`{"fs": {"command": "npx", "cwd": "/a", "working_folder": "/b"}}`:                 `says another folder`,
		`{"fs": {"command": "${TOOL}"}}`:                                                  `f:1:20: VARIABLE_NOT_BOUND: fs: command: the variable "TOOL" is bound by nobody.`,
		`{"fs": {"command": "npx", "args": ["--key=${KEY:-none}"]}}`:                      `f:1:36: VARIABLE_NOT_BOUND: fs: args[0]: the variable "KEY" is bound by nobody.`,
		`{"fs": {"command": "npx", "env": {"T": "${input:token}"}}}`:                      `f:1:40: VARIABLE_NOT_BOUND: fs: env.T: the variable "input:token" is bound by nobody.`,
		`{"fs": {"command": "npx", "args": ["${OPEN"]}}`:                                  `fs: args[0]: holds "${" without "}".`,
		`{"fs": {"command": "npx", "env": {"` + strings.Repeat("A", 9) + `": "\ud800"}}}`: `f:1:`,
	} {
		got := mcpjson.Read("f", []byte(text), nil)
		var all []string
		for _, p := range got.Problems {
			all = append(all, p.String())
		}
		if len(all) == 0 || !strings.Contains(strings.Join(all, "\n"), want) {
			t.Errorf("%s\n got %q\nwant %q", text, all, want)
		}
		for _, e := range got.Entries {
			if len(e.Problems) == 0 {
				t.Errorf("%s: the entry %q counts all the same", text, e.Name)
			}
		}
	}
}

// All problems are told at once, and an entry without one is there (ruling 1, R16's "all errors at once").
func TestAllProblemsAtOnceAndTheRestGoesOn(t *testing.T) {
	got := mcpjson.Read("f", []byte(`{"servers": {
		"a": {"command": 1, "args": [2, "x"], "bogus": true},
		"good": {"command": "npx"},
		"b": {"transport": "carrier-pigeon", "url": "https://x/"}}}`), nil)
	if len(got.Problems) != 4 || len(got.Entries) != 3 {
		t.Fatalf("%d problems, %d entries: %v", len(got.Problems), len(got.Entries), got.Problems)
	}
	for _, e := range got.Entries {
		if (e.Name == "good") != (len(e.Problems) == 0) {
			t.Errorf("%s: %v", e.Name, e.Problems)
		}
	}
}

// Rule 5: ${VAR} expands only what a human bound to that connector; the environment of the service is no source.
func TestVariablesAreBoundPerConnector(t *testing.T) {
	t.Setenv("TOKEN", "from-the-environment")
	text := []byte(`{"a": {"command": "x", "env": {"T": "Bearer ${TOKEN}"}}, "b": {"command": "x", "env": {"T": "${TOKEN}"}}}`)
	got := mcpjson.Read("f", text, map[string]map[string]string{"a": {"TOKEN": "${TOKEN} $1"}})
	if len(got.Entries[0].Problems) != 0 || len(got.Entries[1].Problems) != 1 || got.Entries[1].Problems[0].Variable != "TOKEN" {
		t.Fatalf("%v", got.Problems)
	}
	if v := got.Entries[0].Spec.Env["T"]; v != "Bearer ${TOKEN}" {
		t.Errorf("what is shown is expanded: %q", v)
	}
	expanded, issues := connector.Expand(got.Entries[0].Spec, map[string]string{"TOKEN": "${TOKEN} $1"})
	if len(issues) != 0 || expanded.Env["T"] != "Bearer ${TOKEN} $1" {
		t.Errorf("%v %v", expanded, issues)
	}
}

// What another user can write adds no server.
func TestAFileThatOthersMayWriteIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, []byte(`{"fs": {"command": "npx"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := mcpjson.Load(path, nil); len(got.Entries) != 1 || len(got.Problems) != 0 {
		t.Fatalf("%+v", got)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if got := mcpjson.Load(path, nil); len(got.Entries) != 0 || len(got.Problems) != 1 || !strings.Contains(got.Problems[0].String(), "chmod o-w") {
		t.Errorf("%+v", got)
	}
	if got := mcpjson.Load(filepath.Dir(path), nil); len(got.Problems) != 1 {
		t.Errorf("a folder: %+v", got)
	}
	if got := mcpjson.Load(path+".absent", nil); len(got.Problems)+len(got.Entries) != 0 {
		t.Errorf("absent: %+v", got)
	}
}

func TestAHugeFileIsRefused(t *testing.T) {
	got := mcpjson.Read("f", make([]byte, mcpjson.MaxBytes+1), nil)
	if len(got.Problems) != 1 || !strings.Contains(got.Problems[0].String(), "mcp_json_max_bytes") {
		t.Errorf("%v", got.Problems)
	}
}
