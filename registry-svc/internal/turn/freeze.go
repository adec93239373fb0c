package turn

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/toolname"
	"github.com/writ-dev/writ/registry-svc/internal/builtin"
	"github.com/writ-dev/writ/registry-svc/internal/connector"
	"github.com/writ-dev/writ/registry-svc/internal/fault"
)

// Limits bound a turn.
type Limits struct {
	Tools       int   // tools_per_turn_max
	Definitions int64 // turn_definitions_max_bytes
	Open        int   // open_turns_max, per principal
}

// found is what one provider gave.
type found struct {
	provider  string
	catalogue *connector.Catalogue
	err       error
}

// freezer collects the tools of a turn, in the order of sources: builtins first, so that nothing shadows them (R25).
type freezer struct {
	allow   allowlist
	limits  Limits
	alias   func(server, tool string) string
	tools   []Tool
	bytes   int64
	aliases map[string]string // alias to canonical id
	left    []leftOut
}

type leftOut struct {
	provider string
	err      error
}

func newFreezer(allow allowlist, limits Limits, alias func(server, tool string) string) *freezer {
	return &freezer{allow: allow, limits: limits, alias: alias, aliases: map[string]string{}}
}

func (f *freezer) leave(provider string, err error) {
	f.left = append(f.left, leftOut{provider, err})
}

func (f *freezer) builtins(manifest []builtin.Tool) {
	for _, b := range manifest {
		if !b.Served() || !f.allow.allows(b.Name) {
			continue
		}
		f.add(Tool{
			ID: b.Name, Alias: f.alias("", b.Name), Name: b.Name, Lane: commonv1.Lane_LANE_BUILTIN, Provider: builtin.Provider,
			ProviderDigest: builtin.Digest(), Wire: b.Wire, Semantic: b.Semantic, Definition: b.Definition, Class: b.Class,
		})
	}
}

// server adds the tools of an MCP server. One that failed, or that would burst the turn, is left out as a whole and
// reported; the rest goes on (R17).
func (f *freezer) server(name string, got found) {
	if got.err != nil {
		f.leave(got.provider, got.err)
		return
	}
	if got.catalogue.Digest == "" {
		f.leave(got.provider, fault.New(fault.PeerUnavailable, name, "mcp-host did not say what it starts for "+name, "See `writ connector test "+name+"`."))
		return
	}
	for _, r := range got.catalogue.Rejected {
		f.leave(got.provider, r)
	}
	var mine []Tool
	var size int64
	for _, t := range got.catalogue.Tools {
		id := toolname.MCP(name, t.Name)
		if !f.allow.allows(id) {
			continue
		}
		size += int64(len(t.Definition))
		mine = append(mine, Tool{
			ID: id, Alias: f.alias(name, t.Name), Name: t.Name, Lane: commonv1.Lane_LANE_MCP, Provider: got.provider,
			ProviderDigest: got.catalogue.Digest, Wire: t.Wire, Semantic: t.Semantic, Definition: t.Definition, destructive: t.Destructive,
		})
	}
	const next = "Narrow the turn's tools, or disable connectors that this agent does not need."
	if n := len(f.tools) + len(mine); n > f.limits.Tools {
		f.leave(got.provider, fault.Limit(fault.LimitExceeded, "tools_per_turn_max", int64(f.limits.Tools), int64(n), next))
		return
	}
	if n := f.bytes + size; n > f.limits.Definitions {
		f.leave(got.provider, fault.Limit(fault.LimitExceeded, "turn_definitions_max_bytes", f.limits.Definitions, n, next))
		return
	}
	for _, t := range mine {
		f.add(t)
	}
}

// add takes a tool, unless an earlier one has its alias: the later one is left out and reported (R10).
func (f *freezer) add(t Tool) {
	if other, taken := f.aliases[t.Alias]; taken {
		f.leave(t.Provider, fault.New(fault.AliasCollision, t.ID, "the tool has the alias of another one, so it is left out",
			"Rename one of the connectors.", "other", other, "alias", t.Alias))
		return
	}
	f.aliases[t.Alias] = t.ID
	f.bytes += int64(len(t.Definition))
	f.tools = append(f.tools, t)
}

// classify puts permission's verdicts on the tools. A tool without a class is not available (R42).
func (f *freezer) classify(c Classification) error {
	if len(c.Tools) != len(f.tools) {
		return fault.New(fault.Internal, "permission", fmt.Sprintf("permission classified %d tools of %d", len(c.Tools), len(f.tools)), "")
	}
	kept := f.tools[:0]
	for i, t := range f.tools {
		v := c.Tools[i]
		if v.Tool != t.ID {
			return fault.New(fault.Internal, "permission", "permission answered for "+strconv.Quote(v.Tool)+" where "+t.ID+" was asked for", "")
		}
		t.Class, t.Disposition, t.AlwaysGate, t.Why = v.Class, v.Disposition, v.AlwaysGate, v.Why
		if t.Class == commonv1.SecurityClass_SECURITY_CLASS_UNSPECIFIED || t.Disposition == commonv1.Disposition_DISPOSITION_UNSPECIFIED {
			f.leave(t.Provider, fault.New(fault.ToolNotInTurn, t.ID, "the tool has no class or no disposition, so it is not available",
				"Classify it with `writ grants`."))
			continue
		}
		kept = append(kept, t)
	}
	f.tools = kept
	return nil
}

// name is the toolset's name: a hash over everything that is frozen of the tools. Turns with the same tools share it.
func name(tools []Tool) string {
	h := sha256.New()
	for _, t := range tools {
		for _, part := range []string{
			t.ID, t.Alias, t.Name, t.Lane.String(), t.Provider, t.ProviderDigest, t.Wire, t.Semantic,
			t.Class.String(), t.Disposition.String(), strconv.FormatBool(t.AlwaysGate), t.Why,
		} {
			fmt.Fprintf(h, "%d:%s", len(part), part)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
