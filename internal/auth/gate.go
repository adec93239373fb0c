package auth

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/errs"
)

// Metadata keys of a request.
const (
	authorizationKey = "authorization"
	onBehalfOfKey    = "writ-on-behalf-of-bin" // a serialized writ.common.v1.Principal
)

// maxBearer bounds a token before anything is computed over it. Bytes.
const maxBearer = 8 << 10

// Authenticator turns a bearer token into the credential behind it. It fails with ErrUnknownToken for one that it does
// not know; any other error is a failure of its own.
type Authenticator interface {
	Authenticate(ctx context.Context, bearer string) (Credential, error)
}

// ErrUnknownToken is what an Authenticator answers to a token that is not, or no longer, one of its own.
var ErrUnknownToken = errors.New("the token is not known")

// GateOptions are the dependencies of a Gate.
type GateOptions struct {
	// Authenticator checks bearer tokens. Nil: there are none, and only peers that Peer knows get in.
	Authenticator Authenticator
	// Peer knows peers by other means than a token: the in-process channel's views, a client certificate. It is asked
	// first. What it answers must not be anything that a peer can choose.
	Peer func(ctx context.Context) (Credential, bool)
	// Overrides are the rules of third-party services, by "/package.Service/Method" or "/package.Service/". Nil means
	// DefaultOverrides.
	Overrides map[string]Rule
	// Files is where contracts are looked up. Nil means protoregistry.GlobalFiles.
	Files *protoregistry.Files
}

// Gate decides for every call who it is and whether it may go on.
type Gate struct {
	opts            GateOptions
	rules           *rules
	unauthenticated atomic.Uint64
}

// NewGate makes a gate. It fails if an override names a service of ours.
func NewGate(opts GateOptions) (*Gate, error) {
	if opts.Overrides == nil {
		opts.Overrides = DefaultOverrides()
	}
	r, err := newRules(opts.Files, opts.Overrides)
	if err != nil {
		return nil, err
	}
	return &Gate{opts: opts, rules: r}, nil
}

// Missing lists the methods of a registered service that nobody may call, because they have no rule.
func (g *Gate) Missing(service string, info grpc.ServiceInfo) (methods []string) {
	for _, m := range info.Methods {
		full := "/" + service + "/" + m.Name
		if _, ok := g.rules.of(full); !ok {
			methods = append(methods, full)
		}
	}
	return methods
}

// Unauthenticated counts the requests that came without a credential or with an unknown one; they leave no other trace.
func (g *Gate) Unauthenticated() uint64 { return g.unauthenticated.Load() }

// Admit checks a call and returns ctx with the Identity. Errors: UNAUTHENTICATED, METHOD_WITHOUT_POLICY, ACCESS_DENIED,
// ON_BEHALF_REFUSED.
func (g *Gate) Admit(ctx context.Context, fullMethod string) (context.Context, error) {
	rule, ok := g.rules.of(fullMethod)
	if !ok {
		return ctx, errs.New(codes.PermissionDenied, commonv1.ErrorReason_ERROR_REASON_METHOD_WITHOUT_POLICY, fullMethod,
			"the method has no access rule, so nobody may call it", "Use another method, or a release in which it has one.")
	}
	cred, ctx, err := g.peer(ctx)
	if err != nil {
		if rule.Unauthenticated {
			return ctx, nil
		}
		g.unauthenticated.Add(1)
		return ctx, err
	}
	id, err := identify(ctx, cred)
	if err != nil {
		return ctx, err
	}
	if err := allowed(rule.AccessRule, id, fullMethod); err != nil {
		return ctx, err
	}
	return NewContext(ctx, id), nil
}

// peer finds the peer's credential, and takes the token out of the metadata that handlers see.
func (g *Gate) peer(ctx context.Context) (Credential, context.Context, error) {
	ctx, bearer, err := takeBearer(ctx)
	if g.opts.Peer != nil {
		if cred, ok := g.opts.Peer(ctx); ok {
			return cred, ctx, nil
		}
	}
	if err != nil {
		return Credential{}, ctx, err
	}
	if bearer == "" {
		return Credential{}, ctx, unauthenticated("the call carries no credential")
	}
	if g.opts.Authenticator == nil {
		return Credential{}, ctx, unauthenticated("this server takes no tokens")
	}
	cred, err := g.opts.Authenticator.Authenticate(ctx, bearer)
	if errors.Is(err, ErrUnknownToken) {
		return Credential{}, ctx, unauthenticated("the token is not known")
	}
	return cred, ctx, err
}

func unauthenticated(message string) error {
	return errs.New(codes.Unauthenticated, commonv1.ErrorReason_ERROR_REASON_UNAUTHENTICATED, "", message,
		"Send `authorization: Bearer TOKEN`; an embedded server keeps its tokens in $WRIT_HOME/tokens.")
}

type bearerKey struct{}

// takeBearer moves the token from the metadata, where logs and forwards could meet it, to a place that only
// ForwardToken reads.
func takeBearer(ctx context.Context) (context.Context, string, error) {
	md, ok := metadata.FromIncomingContext(ctx)
	if !ok {
		return ctx, "", nil
	}
	values := md.Get(authorizationKey)
	if len(values) == 0 {
		return ctx, "", nil
	}
	md = md.Copy()
	md.Delete(authorizationKey)
	ctx = metadata.NewIncomingContext(ctx, md)
	if len(values) > 1 {
		return ctx, "", unauthenticated("the call carries more than one credential")
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "bearer") || token == "" || len(token) > maxBearer {
		return ctx, "", unauthenticated("the credential is not a bearer token")
	}
	return context.WithValue(ctx, bearerKey{}, token), token, nil
}

// identify settles who acts. On-behalf-of by anybody but a service is refused, not ignored: who sends it believes that
// it counts.
func identify(ctx context.Context, cred Credential) (Identity, error) {
	self := proto.CloneOf(cred.Principal)
	if self == nil {
		self = &commonv1.Principal{}
	}
	self.Namespace = cred.Namespace
	id := Identity{Peer: self, Subject: self, Credential: cred}
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get(onBehalfOfKey)
	if len(values) == 0 {
		return id, nil
	}
	if !cred.Has(commonv1.Role_ROLE_SERVICE) {
		return id, behalf(self.GetId(), "only a service may act on behalf of somebody", "Call with the credential of whoever acts.")
	}
	subject := &commonv1.Principal{}
	if len(values) > 1 || len(values[0]) > 2048 || proto.Unmarshal([]byte(values[0]), subject) != nil {
		return id, behalf(self.GetId(), "the on-behalf-of header does not hold one principal", "Send one serialized writ.common.v1.Principal.")
	}
	switch subject.GetKind() {
	case commonv1.PrincipalKind_PRINCIPAL_KIND_HUMAN, commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT, commonv1.PrincipalKind_PRINCIPAL_KIND_TRIGGER:
	default:
		return id, behalf(subject.GetId(), "nobody acts on behalf of that kind of principal", "Name a human, an agent or a trigger.")
	}
	if subject.GetNamespace() == "" {
		subject.Namespace = cred.Namespace
	}
	if subject.GetId() == "" || subject.GetNamespace() == "" {
		return id, behalf(subject.GetId(), "the principal has no id or no namespace", "Send both.")
	}
	if cred.Namespace != "" && subject.GetNamespace() != cred.Namespace {
		return id, behalf(subject.GetId(), "the service's credential is for another namespace", "Use a credential of that namespace.")
	}
	id.Subject, id.AssertedBy = subject, self.GetId()
	return id, nil
}

func behalf(name, message, next string) error {
	return errs.New(codes.PermissionDenied, commonv1.ErrorReason_ERROR_REASON_ON_BEHALF_REFUSED, name, message, next)
}

// allowed holds an identity against a rule: the peer's roles, the subject's kind, and whether a service may stand
// between.
func allowed(rule *commonv1.AccessRule, id Identity, fullMethod string) error {
	role := rule.GetAnyone() || slices.ContainsFunc(rule.GetRoles(), id.Credential.Has)
	kind := len(rule.GetKinds()) == 0 || slices.Contains(rule.GetKinds(), id.Subject.GetKind())
	direct := !rule.GetOwnCredential() || !id.Delegated()
	if role && kind && direct {
		return nil
	}
	return errs.New(codes.PermissionDenied, commonv1.ErrorReason_ERROR_REASON_ACCESS_DENIED, fullMethod,
		"the credential of "+id.Peer.GetId()+" may not call this method", "It is for "+describe(rule)+".",
		"needs", describe(rule), "credential", id.Credential.ID)
}

// UnaryServerInterceptor admits or refuses each unary call.
func (g *Gate) UnaryServerInterceptor() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		ctx, err := g.Admit(ctx, info.FullMethod)
		if err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
}

// StreamServerInterceptor admits or refuses each stream.
func (g *Gate) StreamServerInterceptor() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, err := g.Admit(ss.Context(), info.FullMethod)
		if err != nil {
			return err
		}
		return handler(srv, &middleware.WrappedServerStream{ServerStream: ss, WrappedContext: ctx})
	}
}
