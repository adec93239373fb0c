// Package auth says who calls, and whether the method is theirs to call.
//
// The peer is known by its credential alone. A service may say on whose behalf it acts; nobody else can. Which roles
// and kinds of identity a method is for stands in the contract, as the method option writ.common.v1.access, and a
// method without it is nobody's.
package auth

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
)

// Any in Credential.Agents or Credential.WorkspaceRoots stands for all that nothing else forbids.
const Any = "*"

// Credential is what an authenticator knows of a peer, and the limits that the peer's authority never leaves.
type Credential struct {
	// ID names the credential in records; it is no secret.
	ID string
	// Principal is who holds it.
	Principal *commonv1.Principal
	// Roles are what it may do.
	Roles []commonv1.Role
	// Namespace is the tenant. Only a service's may be empty: it serves all of them.
	Namespace string
	// Agents that it may open turns for. Empty: none by name. Any: all.
	Agents []string
	// MaxMode is the highest mode that it may ask for.
	MaxMode commonv1.Mode
	// WorkspaceRoots are folders in and below which it may have workspaces. Empty: only those that an operator
	// configured. Any: every folder that is not forbidden to all.
	WorkspaceRoots []string
}

// Has tells whether the credential has the role.
func (c Credential) Has(role commonv1.Role) bool {
	return role != commonv1.Role_ROLE_UNSPECIFIED && slices.Contains(c.Roles, role)
}

// AllowsAgent tells whether the credential may open turns for the agent. A turn that names none is always allowed.
func (c Credential) AllowsAgent(agent string) bool {
	return agent == "" || slices.Contains(c.Agents, Any) || slices.Contains(c.Agents, agent)
}

// AllowsWorkspace tells whether the absolute path, its links resolved by the caller, lies in or below a root of the
// credential. That a folder is forbidden to everybody (home.Layout.ForbidsWorkspace) is another question.
func (c Credential) AllowsWorkspace(path string) bool {
	path = filepath.Clean(path)
	if !filepath.IsAbs(path) {
		return false
	}
	for _, root := range c.WorkspaceRoots {
		if root == Any {
			return true
		}
		root = filepath.Clean(root)
		if path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/") {
			return true
		}
	}
	return false
}

// ModeRank orders modes by how much runs without asking: plan, manual, accept edits, auto, bypass. An unknown or
// unspecified mode is above all, so that comparing with it refuses.
func ModeRank(m commonv1.Mode) int {
	order := []commonv1.Mode{
		commonv1.Mode_MODE_PLAN, commonv1.Mode_MODE_MANUAL, commonv1.Mode_MODE_ACCEPT_EDITS,
		commonv1.Mode_MODE_AUTO, commonv1.Mode_MODE_BYPASS,
	}
	if i := slices.Index(order, m); i >= 0 {
		return i
	}
	return len(order)
}

// Identity is who stands behind a call.
type Identity struct {
	// Peer holds the credential that was presented.
	Peer *commonv1.Principal
	// Subject is who acts: the peer itself, or whom a service acts on behalf of. Its namespace is set.
	Subject *commonv1.Principal
	// AssertedBy is the id of the service that vouches for Subject, "" where Subject is the peer.
	AssertedBy string
	// Credential is the peer's.
	Credential Credential
}

// Namespace is the tenant that the call belongs to. It is empty for a service that acts for itself.
func (id Identity) Namespace() string { return id.Subject.GetNamespace() }

// Delegated tells whether a service acts on behalf of somebody.
func (id Identity) Delegated() bool { return id.AssertedBy != "" }

type identityKey struct{}

// FromContext returns who stands behind the call that ctx belongs to. It is false outside of a served call.
func FromContext(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(identityKey{}).(Identity)
	return id, ok
}

// NewContext is ctx with an identity, for the interceptor and for tests of what reads it.
func NewContext(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// ServiceCredential is the credential of one of Writ's own services, for channels inside one process.
func ServiceCredential(service string) Credential {
	return Credential{
		ID:        "service:" + service,
		Principal: &commonv1.Principal{Id: service, Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_SERVICE},
		Roles:     []commonv1.Role{commonv1.Role_ROLE_SERVICE},
	}
}
