package ids_test

import (
	"crypto/rand"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/writ-dev/writ/internal/ids"
)

func TestIdsSortByAgeAndDiffer(t *testing.T) {
	start := time.UnixMilli(1_700_000_000_000)
	var made []string
	seen := map[string]bool{}
	for i := range 2000 {
		id := ids.At("t_", start.Add(time.Duration(i)*time.Millisecond), rand.Reader)
		if seen[id] || !ids.Valid("t_", id) {
			t.Fatalf("%s", id)
		}
		seen[id] = true
		made = append(made, id)
	}
	if !sort.StringsAreSorted(made) {
		t.Fatal("ids of later times must sort later")
	}
}

func TestKnownValue(t *testing.T) {
	// The ULID specification's example time, with random bytes of zero.
	got := ids.At("c_", time.UnixMilli(1469918176385), strings.NewReader(strings.Repeat("\x00", 10)))
	if got != "c_01aryz6s410000000000000000" {
		t.Fatal(got)
	}
}

func TestValid(t *testing.T) {
	for _, bad := range []string{"", "t_", "k_01aryz6s410000000000000000", "t_01aryz6s41000000000000000", "t_01aryz6s4100000000000000i0", "t_01ARYZ6S410000000000000000", "t_81aryz6s410000000000000000"} {
		if ids.Valid("t_", bad) {
			t.Errorf("%q is no id", bad)
		}
	}
}
