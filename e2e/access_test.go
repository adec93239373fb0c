package e2e

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/writ-dev/writ/e2e/internal/stack"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
)

// Every method of the contracts, asked for with every credential over the real socket: it is refused exactly where the
// table says so (Trust 5, "Rules that never bend" 1).
func TestTheAccessTableHolds(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	entries, err := auth.Table()
	if err != nil {
		t.Fatal(err)
	}
	served := servedHere(t, s)
	holders := map[string]struct {
		roles []commonv1.Role
		kind  commonv1.PrincipalKind
	}{
		stack.Caller:   {[]commonv1.Role{commonv1.Role_ROLE_CALLER}, commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT},
		stack.Approver: {[]commonv1.Role{commonv1.Role_ROLE_CALLER, commonv1.Role_ROLE_APPROVER, commonv1.Role_ROLE_OPERATOR}, commonv1.PrincipalKind_PRINCIPAL_KIND_HUMAN},
		stack.Service:  {[]commonv1.Role{commonv1.Role_ROLE_SERVICE}, commonv1.PrincipalKind_PRINCIPAL_KIND_SERVICE},
	}
	for credential, holder := range holders {
		conn := s.Client(credential).Conn
		for _, e := range entries {
			if !slices.Contains(served, serviceOf(e.Method)) {
				continue
			}
			may := e.Rule.GetAnyone() || slices.ContainsFunc(e.Rule.GetRoles(), func(r commonv1.Role) bool { return slices.Contains(holder.roles, r) })
			if kinds := e.Rule.GetKinds(); len(kinds) > 0 && !slices.Contains(kinds, holder.kind) {
				may = false
			}
			err := ask(s.Context(), conn, e.Method)
			if refused := errs.ReasonOf(err) == "ACCESS_DENIED"; refused == may {
				t.Errorf("%s as %s: %v; the table says %v", e.Method, credential, err, e.Rule)
			}
			if code := status.Code(err); code == codes.Unimplemented || code == codes.Internal || code == codes.Unknown {
				t.Errorf("%s as %s: %v", e.Method, credential, err)
			}
		}
	}
	nobody := s.WithToken("").Conn
	for _, e := range entries {
		if err := ask(s.Context(), nobody, e.Method); slices.Contains(served, serviceOf(e.Method)) && errs.ReasonOf(err) != "UNAUTHENTICATED" {
			t.Errorf("%s without a credential: %v", e.Method, err)
		}
	}
}

func servedHere(t *testing.T, s *stack.Stack) []string {
	t.Helper()
	info, err := s.Client(stack.Caller).Info.GetServerInfo(s.Context(), &commonv1.GetServerInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(info.GetServices()) < 15 || info.GetDeployment() != s.Deployment || len(info.GetLimits()) == 0 || len(info.GetIsolation()) == 0 {
		t.Errorf("server info: %v", info)
	}
	return info.GetServices()
}

func serviceOf(method string) string {
	for i := 1; i < len(method); i++ {
		if method[i] == '/' {
			return method[1:i]
		}
	}
	return ""
}

// ask calls a method with an empty message, as a stream, which serves unary methods too. A stream that goes on is left
// after its first moment: who may not open it is told at once.
func ask(ctx context.Context, conn grpc.ClientConnInterface, method string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err == nil {
		err = stream.SendMsg(&emptypb.Empty{})
	}
	if err == nil || errors.Is(err, io.EOF) {
		if err = stream.CloseSend(); err == nil {
			err = stream.RecvMsg(&emptypb.Empty{})
		}
	}
	if errors.Is(err, io.EOF) || status.Code(err) == codes.DeadlineExceeded {
		return nil
	}
	return err
}
