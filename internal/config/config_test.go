package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/writ-dev/writ/internal/config"
	"github.com/writ-dev/writ/internal/home"
)

func layout(t *testing.T, yaml string) home.Layout {
	t.Helper()
	l := home.Layout{Root: t.TempDir()}
	if err := os.WriteFile(l.ConfigFile(), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestWithoutAFileTheDefaultsHold(t *testing.T) {
	l := home.Layout{Root: t.TempDir()}
	w, loaded, err := config.LoadWrit(l, nil, nil)
	if err != nil || w.Listen.GRPC != "127.0.0.1:7410" || w.Listen.Socket != l.Socket() || w.Permission.WritLifetime != time.Minute {
		t.Errorf("%+v %v", w, err)
	}
	if o := loaded.Origin("listen.grpc"); o.Kind != "default" {
		t.Errorf("%+v", o)
	}
	if _, _, err := config.LoadWrit(layout(t, ""), nil, nil); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

// Flags over environment over file, and each setting knows where it came from.
func TestTheNearerSourceWins(t *testing.T) {
	l := layout(t, "listen:\n  grpc: 127.0.0.1:1\nlog:\n  level: warn\n  format: json\nworkspace_roots: [/a, /b]\nlimits:\n  connectors_max: 5\n  arguments_max_bytes: 64KiB\n  turn_idle: 2h\n")
	t.Setenv("WRIT_LOG_LEVEL", "debug")
	t.Setenv("WRIT_LISTEN_GRPC", "127.0.0.1:2")
	t.Setenv("WRIT_WORKSPACE_ROOTS", "/c,/d")
	w, loaded, err := config.LoadWrit(l, map[string]string{"listen.grpc": "127.0.0.1:3"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w.Listen.GRPC != "127.0.0.1:3" || w.Log.Level != "debug" || w.Log.Format != "json" || strings.Join(w.WorkspaceRoots, " ") != "/c /d" {
		t.Errorf("%+v", w)
	}
	if w.Limits["connectors_max"].N != 5 || w.Limits["arguments_max_bytes"].N != 65536 || w.Limits["turn_idle"].Duration != 2*time.Hour {
		t.Errorf("%+v", w.Limits)
	}
	for key, want := range map[string]string{"listen.grpc": "flag", "log.level": "environment", "log.format": "file", "permission.max_mode": "default"} {
		if o := loaded.Origin(key); o.Kind != want {
			t.Errorf("%s comes from %+v", key, o)
		}
	}
	if o := loaded.Origin("log.format"); o.Place != l.ConfigFile()+":5" {
		t.Errorf("%+v", o)
	}
	shown := fmt.Sprint(loaded.Settings())
	if !strings.Contains(shown, "log.format json") || !strings.Contains(shown, "limits 3 entries {file") {
		t.Errorf("%s", shown)
	}
}

// A typo fails loudly, with file, line and key, and every mistake is found at once (R16).
func TestEveryMistakeIsNamed(t *testing.T) {
	l := layout(t, strings.Join([]string{
		"listen:",                    // 1
		"  grcp: 127.0.0.1:1",        // 2 unknown
		"  tls: external",            // 3 wrong kind
		"log: [info]",                // 4 wrong kind
		"workspace_roots: /a",        // 5 not a list
		"permission:",                // 6
		"  writ_lifetime: 60",        // 7 no unit
		"  writ_lifetime: 30s",       // 8 twice
		"variables:",                 // 9
		"  fs: {TOKEN: yes, N: 010}", // 10 not text
		"agents:",                    // 11
		"  coder: {tool: [x]}",       // 12 unknown
		"limits: {a: -1}",            // 13
		"trusted_issuers: &x {}",     // 14
		"zebra: 1",                   // 15
	}, "\n"))
	_, _, err := config.LoadWrit(l, map[string]string{"listen": "x", "nonsense": "y"}, nil)
	var all *config.Error
	if !errors.As(err, &all) {
		t.Fatalf("%v", err)
	}
	for line, want := range map[int]string{
		2: "listen.grcp: is not known; did you mean grpc?", 3: "listen.tls: is one value", 4: "log: is a list", 5: "workspace_roots: is one value",
		7: `permission.writ_lifetime: "60" is no duration`, 8: "permission.writ_lifetime: stands twice, first in line 7",
		10: "variables.fs.N: 010 is not text", 12: "agents.coder.tool: is not known; did you mean tools?", 13: `limits.a: "-1" is no limit`,
		14: "trusted_issuers: anchors", 15: "zebra: is not known; known are listen",
	} {
		if place := fmt.Sprintf("%s:%d: %s", l.ConfigFile(), line, want); !strings.Contains(err.Error(), place) {
			t.Errorf("missing %q in\n%v", place, err)
		}
	}
	for _, want := range []string{"flag: listen: is no setting", "flag: nonsense: is no setting"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in\n%v", want, err)
		}
	}
}

func TestValuesThatCannotBeMeant(t *testing.T) {
	for yaml, want := range map[string]string{
		"log: {level: loud}":                               `:1: log.level: "loud" is not known`,
		"\npermission: {max_mode: yolo}":                   `:2: permission.max_mode: "yolo" is not known`,
		"listen: {tls: {certificate: a.pem}}":              `:1: listen.tls: certificate and key go together`,
		"limits: {argument_max_bytes: 1}":                  `:1: limits.argument_max_bytes: is not a limit`,
		"a: {b: [":                                         "is not YAML",
		"log: {level: info}\n---\nlog: {}":                 "more than one document",
		"- a list":                                         "is a list, keys with values are needed",
		"listen: {grpc: x}\n" + strings.Repeat("#", 1<<20): "larger than",
	} {
		_, _, err := config.LoadWrit(layout(t, yaml), nil, map[string]int64{"arguments_max_bytes": 1})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v", yaml, err)
		}
	}
	if _, err := config.Load(&config.Writ{}, config.Options{File: filepath.Join(t.TempDir(), "none.yaml"), Required: true}); err == nil {
		t.Error("a required file that is not there")
	}
	t.Setenv("WRIT_PERMISSION_WRIT_LIFETIME", "soon")
	if _, _, err := config.LoadWrit(layout(t, ""), nil, nil); err == nil || !strings.Contains(err.Error(), "WRIT_PERMISSION_WRIT_LIFETIME") {
		t.Errorf("%v", err)
	}
}

// Values bound to providers are secrets; showing the settings doesn't show them.
func TestSecretsAreNotShown(t *testing.T) {
	_, loaded, err := config.LoadWrit(layout(t, "variables: {fs: {TOKEN: hunter2}}"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if shown := fmt.Sprint(loaded.Settings()); strings.Contains(shown, "hunter2") || !strings.Contains(shown, "variables (hidden)") {
		t.Error(shown)
	}
}
