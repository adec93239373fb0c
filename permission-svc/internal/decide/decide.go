// Package decide puts together what the table is asked: the frozen turn, what people settled since, the standing grants
// and what the command is. It is pure.
package decide

import (
	"slices"
	"strings"
	"time"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/permission-svc/internal/actor"
	"github.com/writ-dev/writ/permission-svc/internal/grant"
	"github.com/writ-dev/writ/permission-svc/internal/setting"
	"github.com/writ-dev/writ/permission-svc/internal/table"
)

// Facts is what the resolver says about the call.
type Facts struct {
	Namespace                          string
	Principal                          actor.Actor
	Agent, Turn, Conversation, Project string
	Mode, CredentialMaxMode            commonv1.Mode
	OpenTime                           time.Time

	Tool, Provider, ProviderDigest, Fingerprint string
	Lane                                        commonv1.Lane
	Class                                       commonv1.SecurityClass // frozen with the turn
	Disposition                                 commonv1.Disposition   // frozen with the turn
	AlwaysGate                                  bool                   // frozen with the turn
	CurrentDigest                               string
	Enabled                                     bool

	Command *Command // nil where the tool runs none
	Now     time.Time
}

// Command is what matters of a command.
type Command struct {
	Destructive, Rememberable bool
	Words                     []string
	Network                   bool // asks for an open network
	Weaker                    bool // would accept less isolation than the default
	Host                      bool // asks for none
}

// Settled is what people settled: what holds now, and what held at some time since the turn was opened. What tightened in
// between still binds the turn, what loosened waits for the next one (ruling 13).
type Settled struct {
	Settings []setting.Settings // in force when the turn opened and later, the last one now
	Own      *setting.Tool      // now; nil: nothing
	Whole    *setting.Tool      // now, for the whole provider
	Since    []setting.Tool     // every version since the turn opened, of both
	Grants   []grant.Grant      // of this principal for this tool
}

// Causes of a decision.
const (
	CauseMode        = "mode"
	CauseDisposition = "disposition"
	CauseGrant       = "grant"
	CauseCard        = "card"
	CausePolicy      = "policy"
)

// Decision is the answer.
type Decision struct {
	Verdict table.Verdict
	Cause   string
	Grant   string
	Why     string // the rule in words; nothing of the call's content
	Reason  permissionv1.ErrorReason
	Changed string // for DECISION_STALE: what
	// OnceOnly: an answer is for this call only and is never remembered.
	OnceOnly bool
}

// Decide decides.
func Decide(f Facts, s Settled) Decision {
	if !f.Enabled {
		return Decision{Verdict: table.Refuse, Cause: CausePolicy, Why: "the provider is disabled or gone", Reason: permissionv1.ErrorReason_ERROR_REASON_TOOL_BLOCKED}
	}
	if f.CurrentDigest != f.ProviderDigest {
		return Decision{Verdict: table.Refuse, Cause: CausePolicy, Why: "the provider changed since the turn was opened",
			Reason: permissionv1.ErrorReason_ERROR_REASON_DECISION_STALE, Changed: "provider"}
	}
	in, extra := inputs(f, s)
	d := Decision{OnceOnly: onceOnly(f, in)}
	d.Verdict = verdict(in, extra, f, false)
	d.Why, d.Cause = why(f, in, extra), CauseMode
	switch {
	case d.Verdict == table.Refuse:
		d.Reason, d.Cause = refusal(f, in)
		return d
	case in[0].Disposition != commonv1.Disposition_DISPOSITION_AUTOMATIC:
		d.Cause = CauseDisposition
	}
	if d.Verdict == table.Ask {
		d.byGrant(f, s, in, extra)
	}
	return d
}

// byGrant lets a grant of a person lift the question.
func (d *Decision) byGrant(f Facts, s Settled, in []table.Input, extra []table.Input) {
	if d.OnceOnly || verdict(in, extra, f, true) != table.Allow {
		return
	}
	if g, ok := grant.Find(s.Grants, Call(f)); ok {
		d.Verdict, d.Cause, d.Grant = table.Allow, CauseGrant, g.ID
		d.Why += "; granted by " + g.By.ID
	}
}

// Call is the call as a grant is held against it.
func Call(f Facts) grant.Call {
	c := grant.Call{
		Tool: f.Tool, ProviderDigest: f.ProviderDigest, Fingerprint: f.Fingerprint, Principal: f.Principal, Agent: f.Agent,
		Turn: f.Turn, Conversation: f.Conversation, Project: f.Project, Now: f.Now,
	}
	if f.Command != nil {
		c.Command, c.Words = true, Words(f.Command)
	}
	return c
}

// Words are the command words that grants would have to name, nil where the command can't be remembered.
func Words(c *Command) []string {
	if !c.Rememberable || c.Weaker || c.Host {
		return nil
	}
	out := slices.Clone(c.Words)
	for i := range out {
		if c.Network {
			out[i] += grant.NetworkWord
		}
	}
	return out
}

// verdict is the strongest word over every class that the call has, or had since the turn was opened.
func verdict(in, extra []table.Input, f Facts, granted bool) table.Verdict {
	var words []table.Verdict
	for _, i := range slices.Concat(in, extra) {
		i.Granted = granted
		words = append(words, table.Decide(i))
	}
	return table.Strongest(words...)
}

// inputs are the table's inputs: one for each class, and in extra those for what a command asks for beside running.
func inputs(f Facts, s Settled) (in, extra []table.Input) {
	base := table.Input{
		Modes: []commonv1.Mode{f.Mode}, Server: f.Lane == commonv1.Lane_LANE_MCP, AlwaysGate: f.AlwaysGate, Disposition: f.Disposition,
	}
	bound := func(limit commonv1.Mode) {
		if f.Mode == commonv1.Mode_MODE_PLAN || commonv1.Mode_name[int32(limit)] == "" || auth.ModeRank(f.Mode) > auth.ModeRank(limit) {
			base.Modes = append(base.Modes, limit)
		}
	}
	bound(credentialMax(f.CredentialMaxMode))
	for _, v := range s.Settings {
		bound(v.Cap)
		base.ModeOff = base.ModeOff || v.Off(f.Mode)
	}
	now := setting.Apply(setting.Fact{Tool: f.Tool, Lane: f.Lane, BuiltinClass: f.Class, ProviderDigest: f.ProviderDigest}, s.Own, s.Whole)
	base.Disposition = setting.Stricter(base.Disposition, now.Disposition)
	if f.Disposition == commonv1.Disposition_DISPOSITION_UNSPECIFIED {
		base.Disposition = f.Disposition // a turn without a disposition is not a turn of ours: refused
	}
	base.AlwaysGate = base.AlwaysGate || now.AlwaysGate
	classes := []commonv1.SecurityClass{f.Class, now.Class}
	for _, v := range s.Since {
		if v.Disposition == commonv1.Disposition_DISPOSITION_ASK_FIRST || v.Disposition == commonv1.Disposition_DISPOSITION_BLOCKED {
			base.Disposition = setting.Stricter(base.Disposition, v.Disposition)
		}
		base.AlwaysGate = base.AlwaysGate || v.AlwaysGate
		if v.Class != 0 && f.Lane == commonv1.Lane_LANE_MCP {
			classes = append(classes, v.Class)
		}
	}
	if c := f.Command; c != nil {
		base.Destructive, base.AlwaysGate = c.Destructive, base.AlwaysGate || c.Host
	}
	for _, c := range slices.Compact(classes) {
		in = append(in, withClass(base, c, s))
	}
	if c := f.Command; c != nil && (c.Network || c.Weaker) {
		// Network and less isolation are permissions of their own (R86): "always allow" for the tool does not hold for them.
		e := withClass(base, commonv1.SecurityClass_SECURITY_CLASS_EXTERNAL_MUTATION, s)
		if e.Disposition == commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW {
			e.Disposition = commonv1.Disposition_DISPOSITION_AUTOMATIC
		}
		extra = append(extra, e)
	}
	return in, extra
}

// credentialMax is the bound of a credential; one without a limit is not one without limits.
func credentialMax(m commonv1.Mode) commonv1.Mode {
	if m == commonv1.Mode_MODE_UNSPECIFIED {
		return commonv1.Mode_MODE_MANUAL
	}
	return m
}

func withClass(base table.Input, c commonv1.SecurityClass, s Settled) table.Input {
	base.Class = c
	for _, v := range s.Settings {
		base.AlwaysAsk = base.AlwaysAsk || v.Asks(c)
	}
	return base
}

// onceOnly: what always asks, and what can't be named by a word, is never remembered.
func onceOnly(f Facts, in []table.Input) bool {
	for _, i := range in {
		if i.AlwaysGate || i.AlwaysAsk || i.Disposition == commonv1.Disposition_DISPOSITION_ASK_FIRST {
			return true
		}
	}
	return f.Command != nil && len(Words(f.Command)) == 0
}

func refusal(f Facts, in []table.Input) (permissionv1.ErrorReason, string) {
	switch {
	case f.Class == 0 || commonv1.SecurityClass_name[int32(f.Class)] == "":
		return permissionv1.ErrorReason_ERROR_REASON_TOOL_UNCLASSIFIED, CausePolicy
	case in[0].Disposition != commonv1.Disposition_DISPOSITION_AUTOMATIC && in[0].Disposition != commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW &&
		in[0].Disposition != commonv1.Disposition_DISPOSITION_ASK_FIRST:
		return permissionv1.ErrorReason_ERROR_REASON_TOOL_BLOCKED, CauseDisposition
	case in[0].ModeOff:
		return permissionv1.ErrorReason_ERROR_REASON_MODE_NOT_ALLOWED, CausePolicy
	}
	return permissionv1.ErrorReason_ERROR_REASON_MODE_REFUSES, CauseMode
}

// why says the rule in words, for example "mode manual, class external mutation".
func why(f Facts, in, extra []table.Input) string {
	parts := []string{"mode " + ModeWord(f.Mode)}
	for _, m := range slices.Compact(slices.Clone(in[0].Modes[1:])) {
		if m != f.Mode {
			parts = append(parts, "bounded by "+ModeWord(m))
		}
	}
	for _, i := range in {
		parts = append(parts, "class "+ClassWord(i.Class))
	}
	if d := in[0].Disposition; d != commonv1.Disposition_DISPOSITION_AUTOMATIC {
		parts = append(parts, "settled: "+actor.Word(d.String(), "DISPOSITION_"))
	}
	if c := f.Command; c != nil {
		parts = appendIf(parts, c.Destructive, "a destructive command, or one that can't be known before it runs")
		parts = appendIf(parts, c.Network, "network open")
		parts = appendIf(parts, c.Weaker, "less isolation than usual")
		parts = appendIf(parts, c.Host, "host execution always asks")
	}
	parts = appendIf(parts, in[0].AlwaysGate && (f.Command == nil || !f.Command.Host), "always gated")
	parts = appendIf(parts, slices.ContainsFunc(slices.Concat(in, extra), func(i table.Input) bool { return i.AlwaysAsk }), "a class that always asks here")
	parts = appendIf(parts, in[0].ModeOff, "the mode is switched off")
	return strings.Join(slices.Compact(parts), ", ")
}

func appendIf(parts []string, yes bool, text string) []string {
	if yes {
		return append(parts, text)
	}
	return parts
}

// ModeWord is a mode for people: "accept edits".
func ModeWord(m commonv1.Mode) string { return actor.Word(m.String(), "MODE_") }

// ClassWord is a class for people: "external mutation".
func ClassWord(c commonv1.SecurityClass) string { return actor.Word(c.String(), "SECURITY_CLASS_") }
