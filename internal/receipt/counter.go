package receipt

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

// Countersignature is what evidence-svc says about a statement: that it holds its envelope, since when, and what it
// verified itself.
type Countersignature struct {
	Receipt   string // "r_…"
	Namespace string
	Service   string // who countersigns
	Peer      string // the authenticated service that presented the statement
	Sealed    time.Time
	Verified  []string // words of docs/receipt.md
	Digest    string   // SHA-256 of the statement's envelope, lower-case hex
}

// Digest is the SHA-256 of an envelope's bytes, lower-case hex.
func Digest(envelope []byte) string {
	sum := sha256.Sum256(envelope)
	return hex.EncodeToString(sum[:])
}

// CounterStatement writes the countersignature's in-toto statement.
func CounterStatement(c Countersignature) ([]byte, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	e := &encoder{b: make([]byte, 0, 1024)}
	e.open("")
	e.text("_type", StatementType)
	e.subject(c.Receipt, digestSHA256, c.Digest)
	e.text("predicateType", CountersignPredicateType)
	e.open("predicate")
	e.text("namespace", c.Namespace)
	e.text("service", c.Service)
	e.text("peer", c.Peer)
	e.time("sealed", c.Sealed)
	e.texts("verified", c.Verified)
	e.close()
	e.close()
	return e.b, e.fault
}

// ParseCounter reads a countersignature's statement strictly.
func ParseCounter(statement []byte) (Countersignature, error) {
	s, predicate, err := openStatement(statement, CountersignPredicateType)
	if err != nil {
		return Countersignature{}, err
	}
	var fault error
	p := read(predicate, "predicate.", &fault)
	c := Countersignature{
		Receipt: s.name, Digest: s.digest, Namespace: p.text("namespace"), Service: p.text("service"), Peer: p.text("peer"),
		Sealed: p.time("sealed"), Verified: p.texts("verified"),
	}
	p.done()
	if fault != nil {
		return Countersignature{}, fault
	}
	if s.alg != digestSHA256 {
		return Countersignature{}, bad("subject", "the digest of an envelope is a sha256")
	}
	return c, c.validate()
}

func (c *Countersignature) validate() error {
	switch {
	case c.Receipt == "":
		return bad("subject.name", "the receipt's id is missing")
	case !isHex(c.Digest, 64):
		return bad("subject.digest", "the SHA-256 of the envelope is needed")
	case c.Namespace == "" || c.Service == "" || c.Peer == "" || c.Sealed.IsZero():
		return bad("predicate", "namespace, service, peer and sealed are needed")
	case len(c.Verified) > MaxList:
		return bad("predicate.verified", strconv.Itoa(len(c.Verified))+" entries, the limit is "+strconv.Itoa(MaxList))
	}
	return nil
}

// Check verifies a whole receipt with nothing but public keys: both signatures, that the second is over the first,
// and that the statement was signed with a key of the service that it names. keys gives the service and the key for a
// key id.
func Check(envelope, counter []byte, keys func(keyID string) (service string, key ed25519.PublicKey, ok bool)) (Facts, Countersignature, error) {
	var signer string
	find := func(keyID string) (ed25519.PublicKey, bool) {
		service, key, ok := keys(keyID)
		signer = service
		return key, ok
	}
	statement, _, err := Verify(envelope, find)
	if err != nil {
		return Facts{}, Countersignature{}, err
	}
	f, err := Parse(statement)
	if err != nil {
		return Facts{}, Countersignature{}, err
	}
	if f.Executor != signer {
		return f, Countersignature{}, bad("predicate.executor", strconv.QuoteToASCII(f.Executor)+", but the key is that of "+strconv.QuoteToASCII(signer))
	}
	raw, _, err := Verify(counter, find)
	if err != nil {
		return f, Countersignature{}, err
	}
	c, err := ParseCounter(raw)
	switch {
	case err != nil:
		return f, c, err
	case c.Service != signer:
		return f, c, bad("predicate.service", strconv.QuoteToASCII(c.Service)+", but the key is that of "+strconv.QuoteToASCII(signer))
	case c.Digest != Digest(envelope):
		return f, c, bad("subject.digest", "the countersignature is over another envelope")
	case c.Peer != f.Executor || c.Namespace != f.Namespace:
		return f, c, bad("predicate", "peer or namespace is not that of the statement")
	}
	return f, c, nil
}
