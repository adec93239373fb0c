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

func TestWordsGoBothWays(t *testing.T) {
	if got := class.Word(commonv1.SecurityClass_SECURITY_CLASS_PERSISTENT_INSTRUCTION_WRITE); got != "persistent_instruction_write" {
		t.Error(got)
	}
	for number := range commonv1.SecurityClass_name {
		c := commonv1.SecurityClass(number)
		got, ok := class.Parse(class.Word(c))
		if c == commonv1.SecurityClass_SECURITY_CLASS_UNSPECIFIED {
			if ok || class.Word(c) != "" {
				t.Error("no class has no word")
			}
			continue
		}
		if !ok || got != c {
			t.Errorf("%v became %v", c, got)
		}
	}
	for _, bad := range []string{"", "unspecified", "READ", "Read", "write"} {
		if _, ok := class.Parse(bad); ok {
			t.Errorf("%q is no class", bad)
		}
	}
}
