// Package setting is what people settled ahead of calls: the namespace's mode cap and floor, and the tools' dispositions
// and classes.
package setting

import (
	"slices"
	"strings"
	"time"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/permission-svc/internal/actor"
)

// Settings are a namespace's. Each change makes a new version; old ones are kept, since what they forbade binds the turns
// that were open then.
type Settings struct {
	Cap       commonv1.Mode
	AlwaysAsk []commonv1.SecurityClass
	ModesOff  []commonv1.Mode
	Version   int64 // 0: nobody settled anything
	By        actor.Actor
	At        time.Time
}

// Default is what holds where no person settled anything: Manual at most.
func Default() Settings { return Settings{Cap: commonv1.Mode_MODE_MANUAL} }

// Off reports whether the mode is switched off.
func (s Settings) Off(m commonv1.Mode) bool { return slices.Contains(s.ModesOff, m) }

// Asks reports whether the class always asks.
func (s Settings) Asks(c commonv1.SecurityClass) bool { return slices.Contains(s.AlwaysAsk, c) }

// Tool is what a person settled for a tool, or with "mcp.<server>.*" for a whole provider.
type Tool struct {
	Tool           string
	Disposition    commonv1.Disposition
	Class          commonv1.SecurityClass
	AlwaysGate     bool
	ProviderDigest string
	By             actor.Actor
	At             time.Time
}

// Whole is the name under which a whole provider is settled; "" for what is no MCP server.
func Whole(provider string) string {
	if !strings.HasPrefix(provider, "mcp.") {
		return ""
	}
	return provider + ".*"
}

// Fact is what a setting is applied to.
type Fact struct {
	Tool           string
	Lane           commonv1.Lane
	BuiltinClass   commonv1.SecurityClass
	ProviderDigest string
	// DestructiveHint is the server's own word that the tool destroys. It can raise, never lower.
	DestructiveHint bool
}

// Verdict is a tool as it is settled.
type Verdict struct {
	Class       commonv1.SecurityClass
	Disposition commonv1.Disposition // never UNSPECIFIED
	AlwaysGate  bool
	Why         string
}

// Apply says what holds for a tool, given what is settled for it and for its whole provider (nil: nothing). The stricter
// disposition of both counts; class and "always allow" hold only for the provider digest that they were given for.
func Apply(f Fact, own, whole *Tool) Verdict {
	v := Verdict{Class: f.BuiltinClass, Why: "builtin class"}
	if f.Lane != commonv1.Lane_LANE_BUILTIN {
		v.Class, v.Why = classOf(f, own, whole)
	}
	for _, t := range []*Tool{own, whole} {
		if t == nil {
			continue
		}
		v.AlwaysGate = v.AlwaysGate || t.AlwaysGate
		if t.Disposition == commonv1.Disposition_DISPOSITION_UNSPECIFIED {
			continue
		}
		d := t.Disposition
		if d == commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW && t.ProviderDigest != f.ProviderDigest {
			d = commonv1.Disposition_DISPOSITION_AUTOMATIC
			v.Why += "; always allow was for another provider digest"
		}
		v.Disposition = Stricter(v.Disposition, d)
	}
	if v.Disposition == commonv1.Disposition_DISPOSITION_UNSPECIFIED {
		v.Disposition = commonv1.Disposition_DISPOSITION_AUTOMATIC
	}
	return v
}

func classOf(f Fact, own, whole *Tool) (commonv1.SecurityClass, string) {
	const highest = commonv1.SecurityClass_SECURITY_CLASS_EXTERNAL_MUTATION
	if own != nil && own.Class != 0 {
		if own.ProviderDigest == f.ProviderDigest {
			return own.Class, "classified by " + own.By.ID
		}
		return highest, "the class was given for another provider digest"
	}
	if whole != nil && whole.Class != 0 {
		switch {
		case whole.ProviderDigest != f.ProviderDigest:
			return highest, "the class was given for another provider digest"
		case f.DestructiveHint:
			return highest, "its server says that it destroys"
		}
		return whole.Class, "classified with its whole server by " + whole.By.ID
	}
	return highest, "nobody classified it"
}

// Stricter is the one of two dispositions that lets less happen. UNSPECIFIED says nothing.
func Stricter(a, b commonv1.Disposition) commonv1.Disposition {
	if rank(a) >= rank(b) {
		return a
	}
	return b
}

func rank(d commonv1.Disposition) int {
	order := []commonv1.Disposition{
		commonv1.Disposition_DISPOSITION_UNSPECIFIED, commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW, commonv1.Disposition_DISPOSITION_AUTOMATIC,
		commonv1.Disposition_DISPOSITION_ASK_FIRST, commonv1.Disposition_DISPOSITION_BLOCKED,
	}
	if i := slices.Index(order, d); i >= 0 {
		return i
	}
	return len(order) // unknown: stricter than all, so that it refuses
}
