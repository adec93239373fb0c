// Package table is ruling 12: what runs, what asks and what is refused, by mode, class, disposition and the operator's
// floor. It is pure, and it is the only place where this is decided.
package table

import (
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
)

// Verdict is the table's word. A larger one is stronger.
type Verdict uint8

// The words, from weakest to strongest.
const (
	Allow  Verdict = iota + 1 // A: it runs
	Ask                       // ?: a person has to say so
	Refuse                    // ×: it does not run
)

// String is the word as the ruling writes it.
func (v Verdict) String() string {
	switch v {
	case Allow:
		return "A"
	case Ask:
		return "?"
	}
	return "×"
}

// Strongest is the strongest of the words; of none it is Refuse.
func Strongest(words ...Verdict) Verdict {
	var out Verdict
	for _, v := range words {
		out = max(out, v)
	}
	if out < Allow || out > Refuse {
		return Refuse
	}
	return out
}

// Input is everything that the verdict on one call depends on.
type Input struct {
	// Modes are the mode of the turn and every mode that bounds it. The strongest word of them counts; none refuses.
	Modes []commonv1.Mode
	// Class is the tool's. One that is absent or unknown is refused in every mode (R42).
	Class commonv1.SecurityClass
	// Disposition is what a person settled; one that is absent or unknown is refused.
	Disposition commonv1.Disposition
	// Granted: a person's standing answer covers this very call. It is worth what "always allow" is worth.
	Granted bool
	// Server: the call goes to an MCP server, which Plan refuses before a byte reaches it (R51).
	Server bool
	// Destructive: the command destroys something, or nobody can know before it runs (R44).
	Destructive bool
	// AlwaysGate: the operator marked the tool; an install, host execution or a new secret. It asks in every mode.
	AlwaysGate bool
	// AlwaysAsk: the operator's floor names the class.
	AlwaysAsk bool
	// ModeOff: the operator's floor does not allow the turn's mode.
	ModeOff bool
}

// Decide gives the verdict.
func Decide(in Input) Verdict {
	v := byModes(in)
	switch in.Disposition {
	case commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW:
		v = lift(v)
	case commonv1.Disposition_DISPOSITION_AUTOMATIC:
		if in.Granted {
			v = lift(v)
		}
	case commonv1.Disposition_DISPOSITION_ASK_FIRST:
		v = max(v, Ask)
	default: // blocked, absent, unknown
		v = Refuse
	}
	if in.AlwaysGate || in.AlwaysAsk {
		v = max(v, Ask)
	}
	if in.ModeOff {
		v = Refuse
	}
	return v
}

// lift is what "always allow" does: it turns "asks" into "runs" and nothing else.
func lift(v Verdict) Verdict {
	if v == Ask {
		return Allow
	}
	return v
}

func byModes(in Input) Verdict {
	words := make([]Verdict, 0, 4)
	for _, m := range in.Modes {
		w := ByMode(m, in.Class, in.Destructive)
		if m == commonv1.Mode_MODE_PLAN && in.Server {
			w = Refuse
		}
		words = append(words, w)
	}
	return Strongest(words...)
}

// ByMode is the cell of the table for a mode and a class.
func ByMode(m commonv1.Mode, c commonv1.SecurityClass, destructive bool) Verdict {
	r := rowOf(m)
	i := int(c) - 1
	if r == nil || i < 0 || i >= len(r) {
		return Refuse
	}
	v := r[i]
	if destructive && m == commonv1.Mode_MODE_AUTO && c == commonv1.SecurityClass_SECURITY_CLASS_PROCESS {
		v = Ask
	}
	return v
}

// row has a word for each class in the order of the contract: read, compute, network search, network read, workspace
// write, process, dispatch, persistent instruction write, external mutation.
type row [9]Verdict

func rowOf(m commonv1.Mode) *row {
	const a, q, x = Allow, Ask, Refuse
	switch m {
	case commonv1.Mode_MODE_MANUAL:
		return &row{a, a, q, q, q, q, q, q, q}
	case commonv1.Mode_MODE_ACCEPT_EDITS:
		return &row{a, a, q, q, a, q, q, q, q}
	case commonv1.Mode_MODE_PLAN:
		return &row{a, a, a, a, x, x, x, x, x}
	case commonv1.Mode_MODE_AUTO:
		return &row{a, a, a, a, a, a, a, q, q}
	case commonv1.Mode_MODE_BYPASS:
		return &row{a, a, a, a, a, a, a, a, a}
	}
	return nil
}
