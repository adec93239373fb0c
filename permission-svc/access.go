package permission

import (
	"context"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/permission-svc/internal/actor"
	"github.com/writ-dev/writ/permission-svc/internal/store"
)

// The interceptor enforces the contract's access rules. What decides, grants or settles is checked here once more: this
// service would otherwise be as safe as the server that it is registered on.

// human returns the person whose own credential has the role, as an actor for the record.
func human(ctx context.Context, role commonv1.Role, method string) (actor.Actor, error) {
	id, err := who(ctx)
	if err != nil {
		return actor.Actor{}, err
	}
	person := id.Subject.GetKind() == commonv1.PrincipalKind_PRINCIPAL_KIND_HUMAN && id.Peer.GetKind() == commonv1.PrincipalKind_PRINCIPAL_KIND_HUMAN
	if !person || id.Delegated() || !id.Credential.Has(role) || id.Namespace() == "" {
		return actor.Actor{}, accessDenied(method, "a person with the role "+actor.Word(role.String(), "ROLE_")+" and a credential of their own")
	}
	return actor.From(id.Subject, id.Credential.ID), nil
}

// service reports whether a service acts for itself.
func service(id auth.Identity) bool {
	return id.Credential.Has(commonv1.Role_ROLE_SERVICE) && !id.Delegated()
}

// viewOf is whose cards and grants an identity may see: a service's own is everything in its namespace (or everywhere),
// an approver's or operator's the namespace, everybody else's its own.
func viewOf(id auth.Identity) store.View {
	v := store.View{Namespace: id.Namespace()}
	wide := service(id) || !id.Delegated() && (id.Credential.Has(commonv1.Role_ROLE_APPROVER) || id.Credential.Has(commonv1.Role_ROLE_OPERATOR))
	if !wide {
		v.Principal = actor.From(id.Subject, "")
	}
	return v
}

// sees reports whether a view shows something of this principal.
func sees(v store.View, owner actor.Actor) bool {
	if v.Namespace != "" && v.Namespace != owner.Namespace {
		return false
	}
	return v.Principal.ID == "" || v.Principal.Is(owner)
}
