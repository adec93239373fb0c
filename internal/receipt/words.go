package receipt

import (
	"strings"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
)

// Enums stand in a statement as the value's name without the type's prefix, in lower case.

func word(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }

// value finds the number of a word. Unknown words and the zero value are not ok.
func value(w, prefix string, values map[string]int32) (int32, bool) {
	if w != strings.ToLower(w) {
		return 0, false
	}
	n, ok := values[prefix+strings.ToUpper(w)]
	return n, ok && n != 0
}

func principalKind(w string) commonv1.PrincipalKind {
	n, _ := value(w, "PRINCIPAL_KIND_", commonv1.PrincipalKind_value)
	return commonv1.PrincipalKind(n)
}

func kindWord(k evidencev1.ReceiptKind) string { return word(k.String(), "RECEIPT_KIND_") }

func isHex(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
