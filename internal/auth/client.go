package auth

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/errs"
)

type behalfKey struct{}

// OnBehalfOf makes the calls of ctx carry the principal for whom a service makes them. Only a peer with the role
// service may; from anybody else such a call is refused. The kit's client interceptors and in-process channels carry it.
func OnBehalfOf(ctx context.Context, p *commonv1.Principal) context.Context {
	return context.WithValue(ctx, behalfKey{}, proto.CloneOf(p))
}

// Delegate is OnBehalfOf the one who stands behind the call that ctx belongs to. Outside of a served call ctx stays
// as it is.
func Delegate(ctx context.Context) context.Context {
	id, ok := FromContext(ctx)
	if !ok || id.Subject.GetKind() == commonv1.PrincipalKind_PRINCIPAL_KIND_SERVICE {
		return ctx
	}
	return OnBehalfOf(ctx, id.Subject)
}

// Outgoing puts into the metadata what the ctx says about on whose behalf it is. A principal that was put there by
// other means is removed.
func Outgoing(ctx context.Context) (context.Context, error) {
	md, _ := metadata.FromOutgoingContext(ctx)
	p, ok := ctx.Value(behalfKey{}).(*commonv1.Principal)
	if !ok && len(md.Get(onBehalfOfKey)) == 0 {
		return ctx, nil
	}
	md = md.Copy()
	md.Delete(onBehalfOfKey)
	if ok {
		b, err := proto.Marshal(p)
		if err != nil {
			return ctx, errs.New(codes.InvalidArgument, commonv1.ErrorReason_ERROR_REASON_FIELD_INVALID, p.GetId(),
				"the principal to act for can't be sent", "Its id must be valid UTF-8.")
		}
		md.Set(onBehalfOfKey, string(b))
	}
	return metadata.NewOutgoingContext(ctx, md), nil
}

// UnaryClientInterceptor carries OnBehalfOf over a socket.
func UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, err := Outgoing(ctx)
		if err != nil {
			return err
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
}

// StreamClientInterceptor carries OnBehalfOf over a socket.
func StreamClientInterceptor() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		ctx, err := Outgoing(ctx)
		if err != nil {
			return nil, err
		}
		return streamer(ctx, desc, cc, method, opts...)
	}
}

// WithToken makes the calls of ctx carry the bearer token.
func WithToken(ctx context.Context, token string) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	md = md.Copy()
	md.Set(authorizationKey, "Bearer "+token)
	return metadata.NewOutgoingContext(ctx, md)
}

// ForwardToken makes the calls of ctx carry the token of the call that ctx belongs to: how the gateway passes a
// caller's request on as the caller's own. Without a token ctx stays as it is.
func ForwardToken(ctx context.Context) context.Context {
	token, ok := ctx.Value(bearerKey{}).(string)
	if !ok {
		return ctx
	}
	return WithToken(ctx, token)
}

// Token gives a connection a bearer token for all its calls. overTLS false is for unix sockets and loopback only.
func Token(token string, overTLS bool) credentials.PerRPCCredentials {
	return bearer{token: token, tls: overTLS}
}

type bearer struct {
	token string
	tls   bool
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{authorizationKey: "Bearer " + b.token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.tls }
