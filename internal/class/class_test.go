package class_test

import (
	"testing"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/class"
)

func TestOnlyTheFourReadingClassesHaveNoEffect(t *testing.T) {
	without := map[commonv1.SecurityClass]bool{
		commonv1.SecurityClass_SECURITY_CLASS_READ: true, commonv1.SecurityClass_SECURITY_CLASS_COMPUTE: true,
		commonv1.SecurityClass_SECURITY_CLASS_NETWORK_SEARCH: true, commonv1.SecurityClass_SECURITY_CLASS_NETWORK_READ: true,
	}
	for number := range commonv1.SecurityClass_name {
		c := commonv1.SecurityClass(number)
		if class.HasEffect(c) == without[c] {
			t.Errorf("%v", c)
		}
	}
	for _, unknown := range []commonv1.SecurityClass{-1, 10, 99} {
		if !class.HasEffect(unknown) {
			t.Errorf("%d is not known and must count as an effect", unknown)
		}
	}
}
