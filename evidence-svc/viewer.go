package evidence

import (
	"context"

	"google.golang.org/grpc/codes"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
)

// viewer is what a caller may see.
type viewer struct {
	namespace string // empty: every one, for a service
	principal string // empty: everybody's
	service   bool
}

// viewerOf derives it from the authenticated identity alone: callers, and those on whose behalf a service asks, see
// their own; approvers and operators their namespace; services what their credential is for.
func viewerOf(ctx context.Context) (viewer, error) {
	id, ok := auth.FromContext(ctx)
	if !ok {
		return viewer{}, errs.New(codes.Unauthenticated, commonv1.ErrorReason_ERROR_REASON_UNAUTHENTICATED, "",
			"the call was not authenticated", "Put the kit's interceptors before the service.")
	}
	own := viewer{namespace: id.Subject.GetNamespace(), principal: id.Subject.GetId()}
	switch {
	case id.Delegated():
		return own, nil
	case id.Credential.Has(commonv1.Role_ROLE_SERVICE):
		return viewer{namespace: id.Credential.Namespace, service: true}, nil
	case id.Credential.Has(commonv1.Role_ROLE_APPROVER), id.Credential.Has(commonv1.Role_ROLE_OPERATOR):
		return viewer{namespace: own.namespace}, nil
	}
	return own, nil
}

// peerOf is the authenticated service behind a call, and the one namespace that its credential is for, "" for all.
func peerOf(ctx context.Context) (name, namespace string, err error) {
	id, ok := auth.FromContext(ctx)
	if !ok {
		_, err := viewerOf(ctx)
		return "", "", err
	}
	return id.Peer.GetId(), id.Credential.Namespace, nil
}

func (v viewer) sees(namespace, principal string) bool {
	return (v.namespace == "" && v.service || v.namespace == namespace) && (v.principal == "" || v.principal == principal)
}

// seesOpening: of its own calls, or as a service. An approver sees others' receipts without what they commit to.
func (v viewer) seesOpening(self, principal string) bool { return v.service || self == principal }

// self is the id of who asks, for an approver too.
func self(ctx context.Context) string {
	id, _ := auth.FromContext(ctx)
	return id.Subject.GetId()
}
