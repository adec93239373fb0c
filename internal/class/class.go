// Package class says what the nine security classes (R41) mean for a call's claim.
package class

import (
	"strings"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
)

// HasEffect reports whether a call of this class may change something, so that
// its claim must be durable before the effect and it runs at most once
// (ruling 9). A class that is not known has an effect: fail closed.
func HasEffect(c commonv1.SecurityClass) bool {
	switch c {
	case commonv1.SecurityClass_SECURITY_CLASS_READ,
		commonv1.SecurityClass_SECURITY_CLASS_COMPUTE,
		commonv1.SecurityClass_SECURITY_CLASS_NETWORK_SEARCH,
		commonv1.SecurityClass_SECURITY_CLASS_NETWORK_READ:
		return false
	}
	return true
}

// prefix begins the name of every value of the enum.
const prefix = "SECURITY_CLASS_"

// Word is the class as a writ says it: "read", … "external_mutation". It is ""
// for no class and for one that is not known.
func Word(c commonv1.SecurityClass) string {
	name, ok := commonv1.SecurityClass_name[int32(c)]
	if !ok || c == commonv1.SecurityClass_SECURITY_CLASS_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(name, prefix))
}

// Parse is the inverse of Word. It reports false for every other word.
func Parse(word string) (commonv1.SecurityClass, bool) {
	c := commonv1.SecurityClass(commonv1.SecurityClass_value[prefix+strings.ToUpper(word)])
	return c, c != commonv1.SecurityClass_SECURITY_CLASS_UNSPECIFIED && Word(c) == word
}
