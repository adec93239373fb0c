package mcphost

import (
	"testing"
	"time"
)

// A writ is good once; one whose call could not be claimed, since evidence was away, is good for another try (R100).
func TestAWritIsUsedOnce(t *testing.T) {
	var u usedWrits
	now := time.Unix(1000, 0)
	expiry := now.Add(time.Minute)
	if !u.use("a", expiry, now) || u.use("a", expiry, now) {
		t.Error("a writ was not used exactly once")
	}
	u.forget("a")
	if !u.use("a", expiry, now) {
		t.Error("a writ that did nothing is used up")
	}
	// What expired is forgotten, so that the memory of ids stays bounded.
	for i := range 2000 {
		at := now.Add(time.Duration(i) * time.Second)
		u.use(string(rune('b'+i)), at.Add(time.Second), at)
	}
	if n := len(u.ids); n > 600 {
		t.Errorf("%d ids are remembered after the others expired", n)
	}
}
