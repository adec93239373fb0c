package permission

import (
	"context"
	"errors"
	"strconv"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/permission-svc/internal/store"
)

type grantService struct {
	permissionv1.UnimplementedGrantServiceServer
	*Server
}

// ListGrants implements the contract.
func (s *grantService) ListGrants(ctx context.Context, req *permissionv1.ListGrantsRequest) (*permissionv1.ListGrantsResponse, error) {
	id, err := who(ctx)
	if err != nil {
		return nil, err
	}
	v := viewOf(id)
	list := []any{"grants", v.Namespace, v.Principal.ID, req.GetIncludeEnded()}
	before, err := readSeqToken(req.GetPageToken(), list...)
	if err != nil {
		return nil, err
	}
	grants, more, err := s.store.Grants(ctx, v, req.GetIncludeEnded(), before, pageSize(req.GetPageSize()))
	if err != nil {
		return nil, err
	}
	out := &permissionv1.ListGrantsResponse{}
	for _, g := range grants {
		out.Grants = append(out.Grants, grantProto(g))
	}
	if more {
		out.NextPageToken = pageToken(strconv.FormatInt(grants[len(grants)-1].Seq, 10), list...)
	}
	return out, nil
}

// RevokeGrant implements the contract.
func (s *grantService) RevokeGrant(ctx context.Context, req *permissionv1.RevokeGrantRequest) (*permissionv1.RevokeGrantResponse, error) {
	person, err := human(ctx, commonv1.Role_ROLE_APPROVER, permissionv1.GrantService_RevokeGrant_FullMethodName)
	if err != nil {
		return nil, err
	}
	g, err := s.store.RevokeGrant(ctx, person.Namespace, req.GetGrant(), person, s.now().UTC())
	if errors.Is(err, store.ErrNotFound) {
		return nil, grantNotFound(req.GetGrant())
	}
	if err != nil {
		return nil, err
	}
	return &permissionv1.RevokeGrantResponse{Grant: grantProto(g)}, nil
}
