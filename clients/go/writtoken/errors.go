package writtoken

import "strconv"

// Reason says why a writ is not accepted, a stable word for machines.
type Reason string

// The reasons, in the order in which Verify and the checks after it find them.
const (
	ReasonNoWrit        Reason = "NO_WRIT"        // no token at all
	ReasonMalformed     Reason = "MALFORMED"      // no strict JWS in compact form, or claims that break the schema
	ReasonAlgorithm     Reason = "ALGORITHM"      // anything but EdDSA, "none" included
	ReasonHeader        Reason = "HEADER"         // a header that is not alg, typ and kid, once each
	ReasonUnknownIssuer Reason = "UNKNOWN_ISSUER" // an issuer that is not trusted here
	ReasonUnknownKey    Reason = "UNKNOWN_KEY"    // a key that the issuer does not publish
	ReasonSignature     Reason = "SIGNATURE"      // the signature is not the key's
	ReasonAudience      Reason = "AUDIENCE"       // meant for another executor or deployment
	ReasonNamespace     Reason = "NAMESPACE"      // of a namespace that is not served here
	ReasonNotYetValid   Reason = "NOT_YET_VALID"  // before its not-before
	ReasonExpired       Reason = "EXPIRED"        // after its expiry
	ReasonTool          Reason = "TOOL"           // for another tool
	ReasonFingerprint   Reason = "FINGERPRINT"    // the tool's definition is not the one that was allowed
	ReasonProvider      Reason = "PROVIDER"       // what would be started or dialled is not what was allowed
	ReasonArguments     Reason = "ARGUMENTS"      // for other argument bytes
	ReasonScopes        Reason = "SCOPES"         // allows less than what is about to be done
)

// Reasons lists every reason, for exhaustive tables.
func Reasons() []Reason {
	return []Reason{ReasonNoWrit, ReasonMalformed, ReasonAlgorithm, ReasonHeader, ReasonUnknownIssuer, ReasonUnknownKey, ReasonSignature, ReasonAudience, ReasonNamespace,
		ReasonNotYetValid, ReasonExpired, ReasonTool, ReasonFingerprint, ReasonProvider, ReasonArguments, ReasonScopes}
}

// Next says what the holder of a refused writ can do.
func (r Reason) Next() string {
	switch r {
	case ReasonNoWrit:
		return "ask the permission service to authorize the call and send the writ that it gives"
	case ReasonMalformed, ReasonAlgorithm, ReasonHeader, ReasonSignature:
		return "send the token exactly as the permission service gave it"
	case ReasonUnknownIssuer, ReasonUnknownKey:
		return "let the operator add the issuer and its keys to trusted_issuers of this executor"
	case ReasonAudience, ReasonNamespace:
		return "send the call to the executor and namespace that the writ was minted for"
	case ReasonNotYetValid:
		return "compare the clocks of the permission service and the executor"
	case ReasonExpired:
		return "authorize the call again: a new writ needs no new answer while nothing has changed"
	case ReasonTool, ReasonArguments:
		return "authorize this tool with these arguments; a writ is for one call only"
	case ReasonFingerprint, ReasonProvider:
		return "open a new turn, so that the changed tool is seen, and call again"
	case ReasonScopes:
		return "authorize the call with the scopes that it needs"
	}
	return "authorize the call again"
}

// Error is a refusal.
type Error struct {
	Reason Reason
	Field  string // the claim or header, where one is to blame: "scopes.paths[2].access"
	Detail string // what is wrong, for a person
	Want   string // what the writ says, where two values differ
	Got    string // what was presented or is about to be done
	cause  error
}

// Error is one sentence with everything but the next step.
func (e *Error) Error() string {
	text := "writ refused (" + string(e.Reason) + ")"
	if e.Field != "" {
		text += ": " + e.Field
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Want != "" || e.Got != "" {
		text += ": the writ says " + strconv.QuoteToASCII(e.Want) + ", this is " + strconv.QuoteToASCII(e.Got)
	}
	return text
}

// Unwrap returns what a KeySource or the JSON reader said, if that is the cause.
func (e *Error) Unwrap() error { return e.cause }

func differ(reason Reason, field, want, got string) error {
	return &Error{Reason: reason, Field: field, Want: want, Got: got}
}

func malformed(field, detail string) *Error {
	return &Error{Reason: ReasonMalformed, Field: field, Detail: detail}
}
