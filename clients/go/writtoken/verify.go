package writtoken

import (
	"context"
	"crypto/ed25519"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/writ-dev/writ/clients/go/rawjson"
)

// DefaultSkew is the difference between two clocks that is tolerated.
const DefaultSkew = 5 * time.Second

// Verifier holds what an executor trusts. Its fields are not changed while it is in use.
type Verifier struct {
	Issuers    map[string]KeySource // trusted issuers by their iss
	Audience   string               // the executor's own aud
	Namespaces []string             // served here; empty stands for any
	Now        func() time.Time     // nil stands for time.Now
	Skew       time.Duration        // 0 stands for DefaultSkew, negative for none
}

// Verify checks form, header, issuer, key, signature, audience, namespace and
// time, in this order, and returns the claims. It does not know what the caller
// is about to do: CheckTool, CheckArguments and the scope checks are still due,
// and so is the claim that makes a writ good for one call only.
func (v *Verifier) Verify(ctx context.Context, token string) (*Claims, error) {
	t, err := parse(token)
	if err != nil {
		return nil, err
	}
	source, ok := v.Issuers[t.claims.Issuer]
	if !ok {
		return nil, &Error{Reason: ReasonUnknownIssuer, Field: "iss", Detail: strconv.QuoteToASCII(t.claims.Issuer) + " is not trusted here"}
	}
	key, err := source.Key(ctx, t.kid)
	if err != nil || len(key) != ed25519.PublicKeySize {
		detail := strconv.QuoteToASCII(t.kid)
		if err != nil && !errors.Is(err, ErrNoKey) {
			detail += ": " + err.Error()
		}
		return nil, &Error{Reason: ReasonUnknownKey, Field: "kid", Detail: detail, cause: err}
	}
	if !ed25519.Verify(key, []byte(t.signed), t.signature) {
		return nil, &Error{Reason: ReasonSignature, Detail: "the signature is not that of key " + strconv.QuoteToASCII(t.kid)}
	}
	if t.claims.Audience != v.Audience {
		return nil, differ(ReasonAudience, "aud", t.claims.Audience, v.Audience)
	}
	if len(v.Namespaces) > 0 && !slices.Contains(v.Namespaces, t.claims.Namespace) {
		return nil, differ(ReasonNamespace, "ns", t.claims.Namespace, strings.Join(v.Namespaces, ", "))
	}
	if err := v.CheckTime(t.claims); err != nil {
		return nil, err
	}
	return t.claims, nil
}

// CheckTime looks at not-before and expiry alone. An executor that queued a
// call asks again right before the claim.
func (v *Verifier) CheckTime(c *Claims) error {
	now, skew := time.Now, v.Skew
	if v.Now != nil {
		now = v.Now
	}
	switch {
	case skew == 0:
		skew = DefaultSkew
	case skew < 0:
		skew = 0
	}
	switch t := now(); {
	case t.Before(c.NotBefore.Add(-skew)):
		return differ(ReasonNotYetValid, "nbf", c.NotBefore.UTC().Format(time.RFC3339), t.UTC().Format(time.RFC3339))
	case !t.Before(c.Expiry.Add(skew)):
		return differ(ReasonExpired, "exp", c.Expiry.UTC().Format(time.RFC3339), t.UTC().Format(time.RFC3339))
	}
	return nil
}

// Unverified reads a token without asking whether it is genuine, for showing
// it to a person. No decision may rest on what it returns.
func Unverified(token string) (kid string, c *Claims, err error) {
	t, err := parse(token)
	if err != nil {
		return "", nil, err
	}
	return t.kid, t.claims, nil
}

// parsed is a token whose form is right.
type parsed struct {
	kid       string
	claims    *Claims
	signed    string // what the signature is over
	signature []byte
}

func parse(token string) (*parsed, error) {
	switch {
	case token == "":
		return nil, &Error{Reason: ReasonNoWrit, Detail: "no token"}
	case len(token) > MaxTokenBytes:
		return nil, malformed("", strconv.Itoa(len(token))+" bytes, the limit of a token is "+strconv.Itoa(MaxTokenBytes))
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, malformed("", "a token has three parts with a dot between, this has "+strconv.Itoa(len(parts)))
	}
	header, ok := decode(parts[0])
	if !ok {
		return nil, malformed("header", "not canonical base64url without padding")
	}
	kid, err := decodeHeader(header)
	if err != nil {
		return nil, err
	}
	payload, ok := decode(parts[1])
	if !ok {
		return nil, malformed("claims", "not canonical base64url without padding")
	}
	signature, ok := decode(parts[2])
	if !ok || len(signature) != ed25519.SignatureSize {
		return nil, malformed("signature", "not the canonical base64url of 64 bytes")
	}
	claims, err := decodeClaims(payload)
	if err != nil {
		return nil, err
	}
	return &parsed{kid, claims, token[:len(parts[0])+1+len(parts[1])], signature}, nil
}

// decodeHeader insists on alg, typ and kid, each once, and nothing else: a
// header that names keys (jku, jwk, x5u, x5c) or changes the rules (crit, b64)
// would let the token say how it wants to be judged.
func decodeHeader(raw []byte) (kid string, err error) {
	if err := rawjson.CheckObject(raw, rawjson.Limits{MaxBytes: 4096, MaxDepth: 4}); err != nil {
		return "", &Error{Reason: ReasonHeader, Detail: err.Error(), cause: err}
	}
	text := map[string]string{}
	for m, err := range rawjson.Members(raw) {
		if err != nil {
			return "", &Error{Reason: ReasonHeader, Detail: err.Error(), cause: err}
		}
		if m.Name != "alg" && m.Name != "typ" && m.Name != "kid" {
			return "", &Error{Reason: ReasonHeader, Field: strconv.QuoteToASCII(m.Name), Detail: "only alg, typ and kid are allowed"}
		}
		if text[m.Name], err = rawjson.String(m.Value); err != nil {
			return "", &Error{Reason: ReasonHeader, Field: m.Name, Detail: "a string is needed", cause: err}
		}
	}
	switch {
	case text["alg"] != "EdDSA":
		return "", &Error{Reason: ReasonAlgorithm, Field: "alg", Detail: strconv.QuoteToASCII(text["alg"]) + ", only EdDSA is accepted"}
	case text["typ"] != typ:
		return "", &Error{Reason: ReasonHeader, Field: "typ", Detail: strconv.QuoteToASCII(text["typ"]) + ", " + typ + " is needed"}
	case text["kid"] == "" || len(text["kid"]) > maxText:
		return "", &Error{Reason: ReasonHeader, Field: "kid", Detail: "missing, empty or too long"}
	}
	return text["kid"], nil
}
