// Package grant is the standing answer of a person.
package grant

import (
	"slices"
	"time"

	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/permission-svc/internal/actor"
)

// NetworkWord is put behind a command word where the grant is for running it with the network open: network is a grant
// of its own (R86).
const NetworkWord = " (network open)"

// Grant is a standing answer. It is for the provider and the definition that the person saw; others suspend it.
type Grant struct {
	ID             string
	Namespace      string
	Lifetime       permissionv1.Lifetime
	Scope          string // turn, conversation or project; "" for the namespace
	Tool           string
	CommandWord    string // "" for every call of the tool
	ProviderDigest string
	Fingerprint    string
	Principal      actor.Actor
	Agent          string // "": every agent of the principal
	By             actor.Actor
	CreateTime     time.Time
	ExpireTime     time.Time // zero: never
	RevokeTime     time.Time // zero: it stands
	RevokedBy      actor.Actor
	Card           string
	Text           string
	Seq            int64 // order of making
}

// Call is what a grant is held against.
type Call struct {
	Tool, ProviderDigest, Fingerprint  string
	Principal                          actor.Actor
	Agent, Turn, Conversation, Project string
	Words                              []string // command words that all have to be covered; nil where the tool runs no command
	Command                            bool     // the tool runs a command
	Now                                time.Time
}

// scopeOf is the scope that a call has for a lifetime; false where it has none.
func (c Call) scopeOf(l permissionv1.Lifetime) (string, bool) {
	switch l {
	case permissionv1.Lifetime_LIFETIME_TURN:
		return c.Turn, c.Turn != ""
	case permissionv1.Lifetime_LIFETIME_CONVERSATION:
		return c.Conversation, c.Conversation != ""
	case permissionv1.Lifetime_LIFETIME_PROJECT:
		return c.Project, c.Project != ""
	case permissionv1.Lifetime_LIFETIME_NAMESPACE:
		return "", true
	}
	return "", false
}

// Stands reports whether the grant holds for calls like this, its command words aside.
func (g Grant) Stands(c Call) bool {
	scope, ok := c.scopeOf(g.Lifetime)
	return ok && g.Scope == scope && g.RevokeTime.IsZero() && (g.ExpireTime.IsZero() || c.Now.Before(g.ExpireTime)) &&
		g.Tool == c.Tool && g.ProviderDigest == c.ProviderDigest && g.Fingerprint == c.Fingerprint && g.Principal.Is(c.Principal) &&
		(g.Agent == "" || g.Agent == c.Agent)
}

// Find returns the grant that lets the call happen; for a command every word needs one, and the last is returned.
func Find(grants []Grant, c Call) (Grant, bool) {
	words := c.Words
	if !c.Command {
		words = []string{""}
	}
	var found Grant
	for _, w := range words {
		i := slices.IndexFunc(grants, func(g Grant) bool { return g.CommandWord == w && g.Stands(c) })
		if i < 0 {
			return Grant{}, false
		}
		found = grants[i]
	}
	return found, len(words) > 0
}
