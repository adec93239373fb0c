// Package fingerprint identifies the definition of a tool. The wire
// fingerprint is over the bytes as they were received and decides; the
// semantic one ignores white space, the order of names and the spelling of
// strings, and explains what kind of change there was.
package fingerprint

import (
	"crypto/sha256"
	"encoding/hex"
	"sort"

	"github.com/writ-dev/writ/internal/rawjson"
)

// Wire is the hexadecimal SHA-256 of the raw bytes.
func Wire(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Semantic is the hexadecimal SHA-256 of the canonical form: no white space,
// names in the order of their UTF-8 bytes, strings with the fewest escapes,
// number tokens as they are written (1.0 and 1 differ, and no digit is lost).
// It fails with a *rawjson.Error for what rawjson.Check refuses.
func Semantic(raw []byte) (string, error) {
	canonical, err := Canonical(raw)
	if err != nil {
		return "", err
	}
	return Wire(canonical), nil
}

// Canonical is the form that Semantic hashes.
func Canonical(raw []byte) ([]byte, error) {
	if err := rawjson.Check(raw, rawjson.Limits{MaxBytes: max(len(raw), 1)}); err != nil {
		return nil, err
	}
	return appendValue(make([]byte, 0, len(raw)), raw)
}

func appendValue(dst, raw []byte) ([]byte, error) {
	switch rawjson.TypeOf(raw) {
	case rawjson.Object:
		return appendObject(dst, raw)
	case rawjson.Array:
		return appendArray(dst, raw)
	case rawjson.Str:
		s, err := rawjson.String(raw)
		return rawjson.AppendString(dst, s), err
	}
	start, end, err := rawjson.Locate(raw, "")
	return append(dst, raw[start:end]...), err
}

func appendObject(dst, raw []byte) ([]byte, error) {
	var members []rawjson.Member
	for m, err := range rawjson.Members(raw) {
		if err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	sort.Slice(members, func(i, j int) bool { return members[i].Name < members[j].Name })
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(rawjson.AppendString(dst, m.Name), ':')
		var err error
		if dst, err = appendValue(dst, m.Value); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

func appendArray(dst, raw []byte) ([]byte, error) {
	dst = append(dst, '[')
	first := true
	for e, err := range rawjson.Elements(raw) {
		if err != nil {
			return nil, err
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if dst, err = appendValue(dst, e); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}
