package config

import (
	"fmt"
	"sort"
	"time"

	"github.com/writ-dev/writ/internal/home"
)

// Prefix is what the variables of settings begin with.
const Prefix = "WRIT_"

// Writ is writ.yaml.
type Writ struct {
	// Listen is where the server can be reached.
	Listen Listen `yaml:"listen"`
	// Log of the server.
	Log Log `yaml:"log"`
	// MCPFile holds connectors, in any of the shapes of mcp.json. Default: $WRIT_HOME/mcp.json, if it is there.
	MCPFile string `yaml:"mcp_file"`
	// Variables are what ${VAR} stands for, by connector. Nothing else is expanded.
	Variables map[string]map[string]string `yaml:"variables" secret:"true"`
	// Agents narrows what agents may call, by name.
	Agents map[string]Agent `yaml:"agents"`
	// WorkspaceRoots are for credentials that have none of their own.
	WorkspaceRoots []string `yaml:"workspace_roots"`
	// TrustedIssuers are key files (JWK Set) by issuer, beside the permission service of this server.
	TrustedIssuers map[string]string `yaml:"trusted_issuers"`
	// Permission holds what caps every turn.
	Permission Permission `yaml:"permission"`
	// Limits by the names of docs/limits.md.
	Limits map[string]Quantity `yaml:"limits"`
}

// Listen is where the server can be reached.
type Listen struct {
	// Socket is the unix socket. Default: $WRIT_HOME/writ.sock.
	Socket string `yaml:"socket"`
	// GRPC is host:port. "none": no TCP.
	GRPC string `yaml:"grpc"`
	// TLS of GRPC. An address that is not loopback needs it.
	TLS TLS `yaml:"tls"`
}

// TLS of a listener.
type TLS struct {
	// Certificate and Key are PEM files.
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
	// External tells that a proxy or a mesh in front ends TLS.
	External bool `yaml:"external"`
}

// Log of the server.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn, error
	Format string `yaml:"format"` // text, json
}

// Agent narrows an agent's tools: patterns of canonical ids. Deny wins.
type Agent struct {
	Tools []string `yaml:"tools"`
	Deny  []string `yaml:"deny"`
}

// Permission holds what caps every turn.
type Permission struct {
	// MaxMode is the highest mode of any turn. Empty: what a person set by RPC, and Manual until then.
	MaxMode string `yaml:"max_mode"`
	// WritLifetime is how long a writ may be used.
	WritLifetime time.Duration `yaml:"writ_lifetime"`
	// DecisionMaxAge is how long after an answer a call may still run.
	DecisionMaxAge time.Duration `yaml:"decision_max_age"`
}

// Default is what holds without a file.
func Default() Writ {
	return Writ{
		Listen:     Listen{GRPC: "127.0.0.1:7410"},
		Log:        Log{Level: "info", Format: "text"},
		Permission: Permission{WritLifetime: time.Minute, DecisionMaxAge: time.Hour},
	}
}

// LoadWrit reads the settings of a home: flags over WRIT_* over writ.yaml over Default. limits are the known names of
// limits; nil leaves them unchecked. The error is an *Error.
func LoadWrit(l home.Layout, flags map[string]string, limits map[string]int64) (Writ, *Loaded, error) {
	w := Default()
	loaded, err := Load(&w, Options{File: l.ConfigFile(), Prefix: Prefix, Flags: flags})
	if err != nil {
		return w, loaded, err
	}
	if w.Listen.Socket == "" {
		w.Listen.Socket = l.Socket()
	}
	return w, loaded, w.check(loaded, limits)
}

func (w Writ) check(l *Loaded, limits map[string]int64) error {
	oneOf := func(key, value string, words ...string) {
		for _, word := range words {
			if value == word {
				return
			}
		}
		l.problem(l.Origin(key).Place, key, "%q is not known; known are %v", value, words)
	}
	oneOf("log.level", w.Log.Level, "debug", "info", "warn", "error")
	oneOf("log.format", w.Log.Format, "text", "json")
	oneOf("permission.max_mode", w.Permission.MaxMode, "", "plan", "manual", "accept_edits", "auto", "bypass")
	if (w.Listen.TLS.Certificate == "") != (w.Listen.TLS.Key == "") {
		l.problem(l.within("listen.tls").Place, "listen.tls", "certificate and key go together")
	}
	names := make([]string, 0, len(w.Limits))
	for name := range w.Limits {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if _, ok := limits[name]; limits != nil && !ok {
			key := fmt.Sprintf("limits.%s", name)
			l.problem(l.Origin(key).Place, key, "is not a limit; docs/limits.md lists them")
		}
	}
	return l.err()
}
