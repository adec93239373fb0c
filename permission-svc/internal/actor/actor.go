// Package actor is who did something, as the identity layer named it, with the credential that was used.
package actor

import (
	"strings"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
)

// Actor is somebody or something that acts. The zero Actor is nobody.
type Actor struct {
	ID         string
	Kind       commonv1.PrincipalKind
	Namespace  string
	Credential string `json:",omitempty"` // the id of the credential; empty where it does not matter
}

// From reads a principal.
func From(p *commonv1.Principal, credential string) Actor {
	return Actor{ID: p.GetId(), Kind: p.GetKind(), Namespace: p.GetNamespace(), Credential: credential}
}

// Proto is the principal, nil for nobody.
func (a Actor) Proto() *commonv1.Principal {
	if a.ID == "" {
		return nil
	}
	return &commonv1.Principal{Id: a.ID, Kind: a.Kind, Namespace: a.Namespace}
}

// Is reports whether both are the same principal, with whatever credential.
func (a Actor) Is(other Actor) bool {
	return a.ID != "" && a.ID == other.ID && a.Kind == other.Kind && a.Namespace == other.Namespace
}

// Word is an enum value for people: "external mutation".
func Word(name, prefix string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, prefix)), "_", " ")
}
