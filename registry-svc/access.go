package registry

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"

	"google.golang.org/grpc/codes"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/registry-svc/internal/connector"
	"github.com/writ-dev/writ/registry-svc/internal/fault"
	"github.com/writ-dev/writ/registry-svc/internal/turn"
)

// who is who stands behind the call. A server without the kit's interceptors lets nobody in.
func who(ctx context.Context) (auth.Identity, error) {
	id, ok := auth.FromContext(ctx)
	if !ok {
		return id, errs.New(codes.Unauthenticated, commonv1.ErrorReason_ERROR_REASON_UNAUTHENTICATED, "", "the call carries no identity",
			"Serve registry-svc behind the kit's interceptors.")
	}
	return id, nil
}

// itself tells whether a service acts for itself, and not for a principal.
func itself(id auth.Identity) bool {
	return id.Credential.Has(commonv1.Role_ROLE_SERVICE) && !id.Delegated()
}

// operates tells whether the peer may see what an operator sees.
func operates(id auth.Identity) bool {
	return !id.Delegated() && id.Credential.Has(commonv1.Role_ROLE_OPERATOR) || itself(id)
}

// seesAll tells whether the peer may see everybody's turns in its namespace.
func seesAll(id auth.Identity) bool {
	return operates(id) || !id.Delegated() && id.Credential.Has(commonv1.Role_ROLE_APPROVER)
}

func principal(id auth.Identity) turn.Principal {
	return turn.Principal{ID: id.Subject.GetId(), Kind: id.Subject.GetKind(), Namespace: id.Namespace()}
}

// key is a connector of the caller's namespace; a service of every namespace means the file's.
func (s *Server) key(id auth.Identity, name string) connector.Key {
	ns := id.Namespace()
	if ns == "" {
		ns = s.cfg.Namespace
	}
	return connector.Key{Namespace: ns, Name: name}
}

// mayRead checks that a turn is the caller's to see. That another's is there is not said.
func mayRead(id auth.Identity, t turn.Turn) error {
	ns := id.Namespace()
	switch {
	case ns == "" && itself(id):
		return nil
	case ns != t.Principal.Namespace:
		return turn.NotFound(t.ID)
	case seesAll(id) || t.Principal == principal(id):
		return nil
	}
	return turn.NotFound(t.ID)
}

// The bounds of a page.
const (
	pageDefault = 50
	pageMax     = 1000
	pageBytes   = 3 << 20
)

func pageSize(asked int32) int {
	switch {
	case asked <= 0:
		return pageDefault
	case asked > pageMax:
		return pageMax
	}
	return int(asked)
}

// cursor is where a page ended and of which list it is.
type cursor struct {
	At   []string `json:"a"`
	List string   `json:"l"`
}

// listID names a list with its filter; a token of another list is refused.
func listID(parts ...string) string {
	b, err := json.Marshal(parts)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

func pageToken(list string, at ...string) string {
	b, err := json.Marshal(cursor{At: at, List: list})
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseToken returns n values, or none for the first page.
func parseToken(token, list string, n int) ([]string, error) {
	if token == "" {
		return nil, nil
	}
	var c cursor
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil || c.List != list || len(c.At) != n {
		return nil, fault.OfField(fault.PageTokenInvalid, "page_token", "", "the token is not of this list, or the filter changed",
			"Begin again without a page_token.")
	}
	return c.At, nil
}
