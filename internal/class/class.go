// Package class says what the nine security classes (R41) mean for a call's claim.
package class

import commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"

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
