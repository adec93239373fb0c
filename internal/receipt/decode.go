package receipt

import (
	"encoding/hex"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/writ-dev/writ/clients/go/rawjson"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
)

// Parse reads a statement strictly: one JSON object, every name at most once and known, every value of its type and
// within its limit, the subject as the predicate says. The error is an *Error.
func Parse(statement []byte) (Facts, error) {
	subject, predicate, err := openStatement(statement, PredicateType)
	if err != nil {
		return Facts{}, err
	}
	var fault error
	p := read(predicate, "predicate.", &fault)
	f := Facts{
		Kind:      evidencev1.ReceiptKind(p.word("kind", "RECEIPT_KIND_", evidencev1.ReceiptKind_value)),
		Namespace: p.text("namespace"), Call: p.text("call"), Executor: p.text("executor"),
		State: commonv1.OutcomeState(p.word("state", "OUTCOME_STATE_", commonv1.OutcomeState_value)),
		Code:  codes.Code(p.number("code")), Reason: p.text("reason"), WritReason: p.text("writ_reason"),
		AssertedBy: p.text("asserted_by"), Agent: p.text("agent"), Conversation: p.text("conversation"),
		Turn: p.text("turn"), TraceID: p.text("trace_id"),
		Class:      commonv1.SecurityClass(p.word("class", "SECURITY_CLASS_", commonv1.SecurityClass_value)),
		WritID:     p.text("writ"),
		Credential: commonv1.CredentialFact(p.word("credential", "CREDENTIAL_FACT_", commonv1.CredentialFact_value)),
		Begin:      p.time("begin"), End: p.time("end"),
		Arguments: p.commitment("arguments"), Result: p.commitment("result"),
	}
	f.readWho(p)
	f.readTool(p)
	f.readExecution(p)
	p.done()
	if fault != nil {
		return Facts{}, fault
	}
	if err := f.validate(); err != nil {
		return Facts{}, err
	}
	name, alg, digest := f.subject()
	if subject != (subjectOf{name, alg, digest}) {
		return Facts{}, bad("subject", "does not name what the predicate is about")
	}
	return f, nil
}

func (f *Facts) readWho(p reader) {
	p.each("principals", MaxList, func(raw []byte, path string) {
		o := read(raw, path+".", p.fault)
		f.Principals = append(f.Principals, &commonv1.Principal{
			Id: o.text("id"), Kind: commonv1.PrincipalKind(o.word("kind", "PRINCIPAL_KIND_", commonv1.PrincipalKind_value)),
			Namespace: f.Namespace,
		})
		o.done()
	})
}

func (f *Facts) readTool(p reader) {
	if o, ok := p.child("tool"); ok {
		f.Tool = &commonv1.ToolIdentity{
			Tool: o.text("tool"), WireFingerprint: o.text("wire_fingerprint"), SemanticFingerprint: o.text("semantic_fingerprint"),
			Provider: o.text("provider"), ProviderDigest: o.text("provider_digest"),
		}
		o.done()
	}
	if o, ok := p.child("decision"); ok {
		f.Decision = Decision{ID: o.text("id"), Cause: o.text("cause"), Card: o.text("card"), Grant: o.text("grant"), Why: o.text("why")}
		o.done()
	}
	if o, ok := p.child("card"); ok {
		f.Card = CardTimes{Asked: o.time("asked"), Shown: o.time("shown"), Decided: o.time("decided")}
		o.done()
	}
}

func (f *Facts) readExecution(p reader) {
	if o, ok := p.child("enforcement"); ok {
		f.Enforcement = &commonv1.Enforcement{
			Isolation: commonv1.Isolation(o.word("isolation", "ISOLATION_", commonv1.Isolation_value)),
			Network:   commonv1.NetworkMode(o.word("network", "NETWORK_MODE_", commonv1.NetworkMode_value)),
			Pid:       o.number("pid"), Mechanisms: o.texts("mechanisms"), Degraded: o.texts("degraded"),
		}
		o.done()
	}
	if o, ok := p.child("survivors"); ok {
		f.Survivors = Survivors{Total: o.number("total"), Ended: o.number("ended")}
		o.each("pids", MaxPIDs, func(raw []byte, path string) {
			n, err := rawjson.Int64(raw)
			if err != nil {
				o.fail(path, "a whole number is needed")
			}
			f.Survivors.PIDs = append(f.Survivors.PIDs, n)
		})
		o.done()
	}
}

// subjectOf is the one subject of a statement.
type subjectOf struct{ name, alg, digest string }

// openStatement checks the frame that both statements have.
func openStatement(statement []byte, predicateType string) (s subjectOf, predicate []byte, err error) {
	if err := rawjson.CheckObject(statement, rawjson.Limits{MaxBytes: MaxStatement, MaxDepth: 8}); err != nil {
		return s, nil, bad("statement", err.Error())
	}
	var fault error
	o := read(statement, "", &fault)
	if o.text("_type") != StatementType {
		o.fail("_type", "is not "+StatementType)
	}
	if o.text("predicateType") != predicateType {
		o.fail("predicateType", "is not "+predicateType)
	}
	n := 0
	o.each("subject", 1, func(raw []byte, path string) {
		n++
		so := read(raw, path+".", &fault)
		s.name = so.text("name")
		if d, ok := so.child("digest"); ok {
			for _, alg := range []string{digestSHA256, digestHMAC} {
				if v := d.text(alg); v != "" {
					s.alg, s.digest = alg, v
				}
			}
			d.done()
		}
		so.done()
	})
	if b, err := hex.DecodeString(s.digest); n != 1 || s.name == "" || err != nil || len(b) != 32 {
		o.fail("subject", "one subject with a name and one digest is needed")
	}
	predicate, ok := o.take("predicate")
	if !ok {
		o.fail("predicate", "is missing")
	}
	o.done()
	return s, predicate, fault
}

// reader reads one object whose names rawjson has checked for duplicates. The first fault is kept, so that reading is
// a list of fields. Fields may be absent; what must be there is the business of validate.
type reader struct {
	path    string
	members map[string][]byte
	fault   *error
}

func read(raw []byte, path string, fault *error) reader {
	r := reader{path: path, members: make(map[string][]byte, 24), fault: fault}
	if *fault != nil {
		return r
	}
	for m, err := range rawjson.Members(raw) {
		if err != nil {
			r.fail("", "an object is needed")
			break
		}
		r.members[m.Name] = m.Value
	}
	return r
}

func (r reader) fail(name, problem string) {
	if *r.fault == nil {
		*r.fault = bad(r.path+name, problem)
	}
}

func (r reader) take(name string) ([]byte, bool) {
	raw, ok := r.members[name]
	delete(r.members, name)
	return raw, ok
}

func (r reader) done() {
	for name := range r.members {
		r.fail(strconv.QuoteToASCII(name), "is not a known name here")
		return
	}
}

func (r reader) text(name string) string {
	raw, ok := r.take(name)
	if !ok {
		return ""
	}
	return r.textOf(name, raw)
}

func (r reader) textOf(name string, raw []byte) string {
	s, err := rawjson.String(raw)
	if err != nil || s == "" || len(s) > MaxText {
		r.fail(name, "a text of 1 to "+strconv.Itoa(MaxText)+" bytes is needed")
	}
	return s
}

func (r reader) texts(name string) (list []string) {
	r.each(name, MaxList, func(raw []byte, path string) { list = append(list, r.textOf(name, raw)) })
	return list
}

func (r reader) number(name string) int64 {
	raw, ok := r.take(name)
	if !ok {
		return 0
	}
	n, err := rawjson.Int64(raw)
	if err != nil || n < 0 {
		r.fail(name, "a whole number that is not negative is needed")
	}
	return n
}

func (r reader) word(name, prefix string, values map[string]int32) int32 {
	w := r.text(name)
	if w == "" {
		return 0
	}
	n, ok := value(w, prefix, values)
	if !ok {
		r.fail(name, strconv.QuoteToASCII(w)+" is not a known value")
	}
	return n
}

func (r reader) time(name string) time.Time {
	s := r.text(name)
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.UTC().Format(time.RFC3339Nano) != s {
		r.fail(name, "a time as RFC 3339 in UTC, without zeros at its end, is needed")
	}
	return t
}

func (r reader) child(name string) (reader, bool) {
	raw, ok := r.take(name)
	if !ok {
		return reader{}, false
	}
	return read(raw, r.path+name+".", r.fault), true
}

func (r reader) commitment(name string) *Commitment {
	o, ok := r.child(name)
	if !ok {
		return nil
	}
	c := &Commitment{MAC: o.text("mac"), Size: o.number("size")}
	o.done()
	return c
}

func (r reader) each(name string, limit int, fn func(raw []byte, path string)) {
	raw, ok := r.take(name)
	if !ok {
		return
	}
	i := 0
	for element, err := range rawjson.Elements(raw) {
		if err != nil || i == limit {
			r.fail(name, "a list of at most "+strconv.Itoa(limit)+" is needed")
			return
		}
		fn(element, name+"["+strconv.Itoa(i)+"]")
		i++
	}
}
