package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
)

// Rule is who may call a method.
type Rule struct {
	*commonv1.AccessRule
	// Unauthenticated lets in who presents nothing. Only for health checks.
	Unauthenticated bool
}

// own is the prefix of the services whose rules stand in the contract and nowhere else.
const own = "writ."

// Anyone is the rule for a third party's method that every authenticated peer may call.
func Anyone() Rule { return Rule{AccessRule: &commonv1.AccessRule{Anyone: true}} }

// DefaultOverrides are the rules of the third-party services that every server has: health needs no credential, since
// who probes has none; reflection and OTLP take any.
func DefaultOverrides() map[string]Rule {
	return map[string]Rule{
		"/grpc.health.v1.Health/":                               Rule{AccessRule: &commonv1.AccessRule{Anyone: true}, Unauthenticated: true},
		"/grpc.reflection.v1.ServerReflection/":                 Anyone(),
		"/opentelemetry.proto.collector.trace.v1.TraceService/": Anyone(),
		"/google.longrunning.Operations/":                       Anyone(),
	}
}

// rules finds the rule of a method: in the contract for services of our own, in the overrides for others.
type rules struct {
	files     *protoregistry.Files
	overrides map[string]Rule
	cache     sync.Map // full method -> Rule, or nil rule where there is none
}

func newRules(files *protoregistry.Files, overrides map[string]Rule) (*rules, error) {
	if files == nil {
		files = protoregistry.GlobalFiles
	}
	for method := range overrides {
		if strings.HasPrefix(strings.TrimPrefix(method, "/"), own) {
			return nil, fmt.Errorf("access override for %s: the rules of %s* services stand in the contract only", method, own)
		}
	}
	return &rules{files: files, overrides: overrides}, nil
}

func (r *rules) of(fullMethod string) (Rule, bool) {
	if cached, ok := r.cache.Load(fullMethod); ok {
		rule := cached.(Rule)
		return rule, rule.AccessRule != nil
	}
	rule, known := r.find(fullMethod)
	if known {
		// Only methods that exist are remembered: names from outside must not fill the memory.
		r.cache.Store(fullMethod, rule)
	}
	return rule, rule.AccessRule != nil
}

func (r *rules) find(fullMethod string) (rule Rule, known bool) {
	service, method, ok := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	if !ok {
		return Rule{}, false
	}
	if !strings.HasPrefix(service, own) {
		if rule, ok := r.overrides["/"+service+"/"+method]; ok {
			return rule, true
		}
		rule, ok := r.overrides["/"+service+"/"]
		return rule, ok
	}
	d, err := r.files.FindDescriptorByName(protoreflect.FullName(service + "." + method))
	if err != nil {
		return Rule{}, false
	}
	md, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return Rule{}, false
	}
	return Rule{AccessRule: accessOption(md)}, true
}

func accessOption(md protoreflect.MethodDescriptor) *commonv1.AccessRule {
	opts, ok := md.Options().(*descriptorpb.MethodOptions)
	if !ok || !proto.HasExtension(opts, commonv1.E_Access) {
		return nil
	}
	return proto.GetExtension(opts, commonv1.E_Access).(*commonv1.AccessRule)
}

// Entry is one line of the access table.
type Entry struct {
	Method string // "/writ.permission.v1.CardService/DecideCard"
	Rule   *commonv1.AccessRule
}

// String is the line for a person.
func (e Entry) String() string { return e.Method + " " + describe(e.Rule) }

// Table lists every method of every linked service of ours with its rule, ordered by name. It fails, and names each
// of them, when a method has no rule or one that cannot be meant.
func Table() ([]Entry, error) { return TableOf(protoregistry.GlobalFiles) }

// TableOf is Table for another set of contracts.
func TableOf(files *protoregistry.Files) (entries []Entry, err error) {
	files.RangeFiles(func(fd protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(string(fd.Package()), own) {
			return true
		}
		for i := range fd.Services().Len() {
			sd := fd.Services().Get(i)
			for j := range sd.Methods().Len() {
				md := sd.Methods().Get(j)
				e := Entry{Method: fmt.Sprintf("/%s/%s", sd.FullName(), md.Name()), Rule: accessOption(md)}
				entries = append(entries, e)
				err = errors.Join(err, wellMeant(e))
			}
		}
		return true
	})
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Method, b.Method) })
	return entries, err
}

// wellMeant finds rules that say nothing or contradict themselves.
func wellMeant(e Entry) error {
	switch {
	case e.Rule == nil:
		return fmt.Errorf("%s has no access rule: nobody may call it", e.Method)
	case !e.Rule.GetAnyone() && len(e.Rule.GetRoles()) == 0:
		return fmt.Errorf("%s: its rule lets nobody in", e.Method)
	case e.Rule.GetAnyone() && len(e.Rule.GetRoles()) > 0:
		return fmt.Errorf("%s: its rule says anyone and names roles", e.Method)
	case slices.Contains(e.Rule.GetRoles(), commonv1.Role_ROLE_UNSPECIFIED):
		return fmt.Errorf("%s: its rule names no role where it should", e.Method)
	case slices.Contains(e.Rule.GetKinds(), commonv1.PrincipalKind_PRINCIPAL_KIND_UNSPECIFIED):
		return fmt.Errorf("%s: its rule names no kind where it should", e.Method)
	}
	return nil
}

// describe says in words what a rule asks for: "needs caller or operator, a human, its own credential".
func describe(r *commonv1.AccessRule) string {
	if r == nil {
		return "nobody"
	}
	var parts []string
	if r.GetAnyone() {
		parts = append(parts, "anyone")
	} else {
		parts = append(parts, join(r.GetRoles(), "ROLE_"))
	}
	if len(r.GetKinds()) > 0 {
		parts = append(parts, "a "+join(r.GetKinds(), "PRINCIPAL_KIND_"))
	}
	if r.GetOwnCredential() {
		parts = append(parts, "with its own credential")
	}
	return strings.Join(parts, ", ")
}

func join[E fmt.Stringer](values []E, prefix string) string {
	if len(values) == 0 {
		return "nobody"
	}
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = strings.ToLower(strings.TrimPrefix(v.String(), prefix))
	}
	return strings.Join(names, " or ")
}
