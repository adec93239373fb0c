package receipt

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"strconv"

	"github.com/writ-dev/writ/clients/go/rawjson"
)

// PayloadType is the DSSE payload type of both envelopes.
const PayloadType = "application/vnd.in-toto+json"

// MaxEnvelope is the size of an envelope in bytes that Verify reads.
const MaxEnvelope = 64 << 10

// Sign puts the statement into a DSSE envelope, signed by the key. The bytes of the envelope are what is stored and
// later verified; they are never written anew.
func Sign(statement []byte, keyID string, key ed25519.PrivateKey) ([]byte, error) {
	switch {
	case len(key) != ed25519.PrivateKeySize:
		return nil, bad("key", "is no Ed25519 private key")
	case keyID == "" || len(keyID) > MaxText:
		return nil, bad("envelope.signatures[0].keyid", "1 to "+strconv.Itoa(MaxText)+" bytes are needed")
	}
	sig := ed25519.Sign(key, pae(statement))
	b := make([]byte, 0, 256+base64.StdEncoding.EncodedLen(len(statement)))
	b = append(b, `{"payloadType":"`+PayloadType+`","payload":"`...)
	b = base64.StdEncoding.AppendEncode(b, statement)
	b = append(b, `","signatures":[{"keyid":`...)
	b = rawjson.AppendString(b, keyID)
	b = append(b, `,"sig":"`...)
	b = base64.StdEncoding.AppendEncode(b, sig)
	b = append(b, `"}]}`...)
	if len(b) > MaxEnvelope {
		return nil, bad("envelope", strconv.Itoa(len(b))+" bytes, the limit is "+strconv.Itoa(MaxEnvelope))
	}
	return b, nil
}

// pae is the Pre-Authentication Encoding, the bytes that are signed.
func pae(statement []byte) []byte {
	b := make([]byte, 0, len(statement)+64)
	b = append(b, "DSSEv1 "...)
	b = strconv.AppendInt(b, int64(len(PayloadType)), 10)
	b = append(b, " "+PayloadType+" "...)
	b = strconv.AppendInt(b, int64(len(statement)), 10)
	b = append(b, ' ')
	return append(b, statement...)
}

// Verify reads an envelope with exactly one signature and returns the signed bytes. keys finds a public key by its
// id. It does not look into the statement. The error is an *Error.
func Verify(envelope []byte, keys func(keyID string) (ed25519.PublicKey, bool)) (statement []byte, keyID string, err error) {
	statement, keyID, sig, err := openEnvelope(envelope)
	if err != nil {
		return nil, "", err
	}
	key, ok := keys(keyID)
	if !ok || len(key) != ed25519.PublicKeySize {
		return nil, keyID, bad("envelope.signatures[0].keyid", strconv.QuoteToASCII(keyID)+" is not a known key")
	}
	if !ed25519.Verify(key, pae(statement), sig) {
		return nil, keyID, bad("envelope.signatures[0].sig", "is not the signature of key "+strconv.QuoteToASCII(keyID))
	}
	return statement, keyID, nil
}

// Unverified returns an envelope's statement without asking whether it is genuine, for showing it to a person.
func Unverified(envelope []byte) (statement []byte, keyID string, err error) {
	statement, keyID, _, err = openEnvelope(envelope)
	return statement, keyID, err
}

func openEnvelope(envelope []byte) (statement []byte, keyID string, sig []byte, err error) {
	if err := rawjson.CheckObject(envelope, rawjson.Limits{MaxBytes: MaxEnvelope, MaxDepth: 4}); err != nil {
		return nil, "", nil, bad("envelope", err.Error())
	}
	var fault error
	o := read(envelope, "envelope.", &fault)
	if o.text("payloadType") != PayloadType {
		o.fail("payloadType", "is not "+PayloadType)
	}
	raw, _ := o.take("payload")
	statement, ok := base64Of(raw)
	if !ok {
		o.fail("payload", "standard base64 is needed")
	}
	n := 0
	o.each("signatures", 1, func(raw []byte, path string) {
		n++
		s := read(raw, "envelope."+path+".", &fault)
		keyID = s.text("keyid")
		rawSig, _ := s.take("sig")
		var ok bool
		if sig, ok = base64Of(rawSig); !ok {
			s.fail("sig", "standard base64 is needed")
		}
		s.done()
	})
	if n != 1 {
		o.fail("signatures", "exactly one is needed")
	}
	o.done()
	return statement, keyID, sig, fault
}

// base64Of decodes a JSON string of standard base64 in its one canonical spelling.
func base64Of(raw []byte) ([]byte, bool) {
	if len(raw) < 2 || raw[0] != '"' || bytes.ContainsAny(raw, "\\\r\n") {
		return nil, false
	}
	b, err := base64.StdEncoding.Strict().DecodeString(string(raw[1 : len(raw)-1]))
	return b, err == nil
}
