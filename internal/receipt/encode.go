package receipt

import (
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/writ-dev/writ/clients/go/rawjson"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
)

// Names of digests in a subject.
const (
	digestSHA256 = "sha256"
	digestHMAC   = "hmac-sha256"
)

// unknownSubject names the subject of a refusal that is about no known call.
const unknownSubject = "unknown"

// Statement writes the facts as an in-toto Statement v1. The same facts give the same bytes. The error is an *Error.
func Statement(f Facts) ([]byte, error) {
	if err := f.validate(); err != nil {
		return nil, err
	}
	name, alg, digest := f.subject()
	e := &encoder{b: make([]byte, 0, 2048)}
	e.open("")
	e.text("_type", StatementType)
	e.subject(name, alg, digest)
	e.text("predicateType", PredicateType)
	e.open("predicate")
	e.text("kind", kindWord(f.Kind))
	e.text("namespace", f.Namespace)
	e.text("call", f.Call)
	e.text("executor", f.Executor)
	e.outcome(&f)
	e.who(&f)
	e.tool(&f)
	e.why(&f)
	e.commitment("arguments", f.Arguments)
	e.commitment("result", f.Result)
	e.execution(&f)
	e.close()
	e.close()
	switch {
	case e.fault != nil:
		return nil, e.fault
	case len(e.b) > MaxStatement:
		return nil, bad("statement", strconv.Itoa(len(e.b))+" bytes, the limit is "+strconv.Itoa(MaxStatement))
	}
	return e.b, nil
}

// subject is the call with the commitment to its arguments; for a provider's start the provider with its digest.
func (f *Facts) subject() (name, alg, digest string) {
	if f.Kind == evidencev1.ReceiptKind_RECEIPT_KIND_PROVIDER_START {
		return f.Tool.GetProvider(), digestSHA256, f.Tool.GetProviderDigest()
	}
	name = f.Call
	if name == "" {
		name = unknownSubject
	}
	mac, _ := decodeMAC(f.Arguments.MAC)
	return name, digestHMAC, hex.EncodeToString(mac)
}

func decodeMAC(s string) ([]byte, bool) {
	mac, err := base64.RawURLEncoding.Strict().DecodeString(s)
	return mac, err == nil && len(mac) == 32
}

func (f *Facts) validate() error {
	provider := f.Kind == evidencev1.ReceiptKind_RECEIPT_KIND_PROVIDER_START
	call := f.Kind == evidencev1.ReceiptKind_RECEIPT_KIND_CALL
	refusal := f.Kind == evidencev1.ReceiptKind_RECEIPT_KIND_REFUSAL
	refused := f.State == commonv1.OutcomeState_OUTCOME_STATE_REFUSED
	switch {
	case !provider && !call && !refusal:
		return bad("predicate.kind", "is not known")
	case f.Namespace == "":
		return bad("predicate.namespace", "is missing")
	case f.Executor == "":
		return bad("predicate.executor", "is missing")
	case call && f.Call == "":
		return bad("predicate.call", "is missing")
	case provider && f.Call != "":
		return bad("predicate.call", "a provider's start is about no call")
	case provider && (f.Tool.GetProvider() == "" || !isHex(f.Tool.GetProviderDigest(), 64)):
		return bad("predicate.tool.provider_digest", "a provider's start names the provider and its digest, 64 hex digits")
	case provider && f.State != 0:
		return bad("predicate.state", "a provider's start has none")
	case !provider && commonv1.OutcomeState_name[int32(f.State)] == "", !provider && f.State == 0:
		return bad("predicate.state", "is missing or not known")
	case refusal != refused && !provider:
		return bad("predicate.state", "REFUSED and the kind refusal go together")
	case !provider && f.Arguments == nil:
		return bad("predicate.arguments", "the commitment to the argument bytes is missing")
	case f.TraceID != "" && !isHex(f.TraceID, 32):
		return bad("predicate.trace_id", "32 lower-case hex digits are needed")
	case f.Turn != "" && len(f.Principals) == 0:
		return bad("predicate.principals", "a call of a turn has somebody who acts")
	case !f.Begin.IsZero() && !f.End.IsZero() && f.End.Before(f.Begin):
		return bad("predicate.end", "is before begin")
	case f.Survivors.Ended > f.Survivors.Total || int64(len(f.Survivors.PIDs)) > f.Survivors.Total:
		return bad("predicate.survivors", "more are listed or ended than there were")
	}
	for name, c := range map[string]*Commitment{"arguments": f.Arguments, "result": f.Result} {
		if c == nil {
			continue
		}
		if _, ok := decodeMAC(c.MAC); !ok || c.Size < 0 {
			return bad("predicate."+name, "a mac of 32 bytes in base64url and a size are needed")
		}
	}
	return nil
}

func (e *encoder) subject(name, alg, digest string) {
	e.name("subject")
	e.b = append(e.b, `[{"name":`...)
	e.b = rawjson.AppendString(e.b, name)
	e.b = append(e.b, `,"digest":{`...)
	e.b = rawjson.AppendString(e.b, alg)
	e.b = append(e.b, ':')
	e.b = rawjson.AppendString(e.b, digest)
	e.b = append(e.b, `}}]`...)
}

func (e *encoder) outcome(f *Facts) {
	if f.State == 0 {
		return
	}
	e.text("state", word(f.State.String(), "OUTCOME_STATE_"))
	e.number("code", int64(f.Code))
	e.text("reason", f.Reason)
	e.text("writ_reason", f.WritReason)
}

func (e *encoder) who(f *Facts) {
	if len(f.Principals) > MaxList {
		e.fail("principals", "too many")
		return
	}
	if len(f.Principals) > 0 {
		e.name("principals")
		e.b = append(e.b, '[')
		for i, p := range f.Principals {
			if i > 0 {
				e.b = append(e.b, ',')
			}
			e.open("")
			e.text("id", p.GetId())
			e.text("kind", word(p.GetKind().String(), "PRINCIPAL_KIND_"))
			e.close()
		}
		e.b = append(e.b, ']')
	}
	e.text("asserted_by", f.AssertedBy)
	e.text("agent", f.Agent)
	e.text("conversation", f.Conversation)
	e.text("turn", f.Turn)
	e.text("trace_id", f.TraceID)
}

func (e *encoder) tool(f *Facts) {
	if t := f.Tool; t != nil {
		e.open("tool")
		e.text("tool", t.GetTool())
		e.text("wire_fingerprint", t.GetWireFingerprint())
		e.text("semantic_fingerprint", t.GetSemanticFingerprint())
		e.text("provider", t.GetProvider())
		e.text("provider_digest", t.GetProviderDigest())
		e.close()
	}
	if f.Class != 0 {
		e.text("class", word(f.Class.String(), "SECURITY_CLASS_"))
	}
	e.text("writ", f.WritID)
}

func (e *encoder) why(f *Facts) {
	if d := f.Decision; d != (Decision{}) {
		e.open("decision")
		e.text("id", d.ID)
		e.text("cause", d.Cause)
		e.text("card", d.Card)
		e.text("grant", d.Grant)
		e.text("why", d.Why)
		e.close()
	}
	if c := f.Card; c != (CardTimes{}) {
		e.open("card")
		e.time("asked", c.Asked)
		e.time("shown", c.Shown)
		e.time("decided", c.Decided)
		e.close()
	}
}

func (e *encoder) commitment(name string, c *Commitment) {
	if c == nil {
		return
	}
	e.open(name)
	e.text("mac", c.MAC)
	e.number("size", c.Size)
	e.close()
}

func (e *encoder) execution(f *Facts) {
	if x := f.Enforcement; x != nil {
		e.open("enforcement")
		if x.GetIsolation() != 0 {
			e.text("isolation", word(x.GetIsolation().String(), "ISOLATION_"))
		}
		if x.GetNetwork() != 0 {
			e.text("network", word(x.GetNetwork().String(), "NETWORK_MODE_"))
		}
		e.texts("mechanisms", x.GetMechanisms())
		e.texts("degraded", x.GetDegraded())
		if x.GetPid() != 0 {
			e.number("pid", x.GetPid())
		}
		e.close()
	}
	if s := f.Survivors; s.Total > 0 {
		e.open("survivors")
		e.number("total", s.Total)
		e.number("ended", s.Ended)
		e.numbers("pids", s.PIDs)
		e.close()
	}
	if f.Credential != 0 {
		e.text("credential", word(f.Credential.String(), "CREDENTIAL_FACT_"))
	}
	e.time("begin", f.Begin)
	e.time("end", f.End)
}

// encoder appends JSON. Empty texts and zero times are left out; the first fault is kept.
type encoder struct {
	b     []byte
	fault error
}

func (e *encoder) fail(field, problem string) {
	if e.fault == nil {
		e.fault = bad("predicate."+field, problem)
	}
}

// open begins an object, as a member where it has a name.
func (e *encoder) open(name string) {
	if name != "" {
		e.name(name)
	}
	e.b = append(e.b, '{')
}

func (e *encoder) close() { e.b = append(e.b, '}') }

// name writes a member's name, one of this package's own.
func (e *encoder) name(name string) {
	if last := e.b[len(e.b)-1]; last != '{' && last != '[' {
		e.b = append(e.b, ',')
	}
	e.b = append(append(append(e.b, '"'), name...), '"', ':')
}

func (e *encoder) text(name, v string) {
	if v == "" {
		return
	}
	e.name(name)
	e.quoted(name, v)
}

func (e *encoder) quoted(name, v string) {
	switch {
	case len(v) > MaxText:
		e.fail(name, strconv.Itoa(len(v))+" bytes, the limit of a text is "+strconv.Itoa(MaxText))
	case !utf8.ValidString(v):
		e.fail(name, "is not valid UTF-8")
	default:
		e.b = rawjson.AppendString(e.b, v)
	}
}

func (e *encoder) texts(name string, list []string) {
	if len(list) > MaxList {
		e.fail(name, strconv.Itoa(len(list))+" entries, the limit is "+strconv.Itoa(MaxList))
		return
	}
	if len(list) == 0 {
		return
	}
	e.name(name)
	e.b = append(e.b, '[')
	for i, v := range list {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		e.quoted(name, v)
	}
	e.b = append(e.b, ']')
}

func (e *encoder) number(name string, n int64) {
	e.name(name)
	e.b = strconv.AppendInt(e.b, n, 10)
}

func (e *encoder) numbers(name string, list []int64) {
	if len(list) > MaxPIDs {
		e.fail(name, "too many")
		return
	}
	e.name(name)
	e.b = append(e.b, '[')
	for i, n := range list {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		e.b = strconv.AppendInt(e.b, n, 10)
	}
	e.b = append(e.b, ']')
}

func (e *encoder) time(name string, t time.Time) {
	if !t.IsZero() {
		e.text(name, t.UTC().Format(time.RFC3339Nano))
	}
}
