package turn

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/writ-dev/writ/registry-svc/internal/connector"
	"github.com/writ-dev/writ/registry-svc/internal/fault"
)

// R10, R14: of two tools with one alias the later one is left out and reported; it never takes the first one's place.
func TestAnAliasCollisionLeavesTheLaterOneOut(t *testing.T) {
	f := newFreezer(allowlist{}, Limits{Tools: 10, Definitions: 1000}, func(_, tool string) string { return tool })
	for _, server := range []string{"a", "b"} {
		f.server(server, found{provider: "mcp." + server, catalogue: &connector.Catalogue{Digest: "d", Tools: []connector.Tool{{Name: "same"}, {Name: server}}}})
	}
	var got []string
	for _, tool := range f.tools {
		got = append(got, tool.ID)
	}
	if !slices.Equal(got, []string{"mcp.a.same", "mcp.a.a", "mcp.b.b"}) {
		t.Errorf("%v", got)
	}
	if len(f.left) != 1 || f.left[0].provider != "mcp.b" || !fault.Is(f.left[0].err, fault.AliasCollision) {
		t.Errorf("%v", f.left)
	}
}

// A watcher that does not read is ended and told so; the others and whoever ends turns go on.
func TestASlowWatcherIsEnded(t *testing.T) {
	h := NewHub()
	slow, quick := h.Watch(), h.Watch()
	for i := range watchBuffer + 1 {
		h.publish(Turn{ID: fmt.Sprint(i)})
		if got := <-quick.C; got.ID != fmt.Sprint(i) {
			t.Fatalf("the quick one got %v", got)
		}
	}
	n := 0
	for range slow.C {
		n++
	}
	if n != watchBuffer || !fault.Is(slow.Err(), fault.CursorInvalid) {
		t.Errorf("%d, %v", n, slow.Err())
	}
	slow.Stop()
	quick.Stop()
	if quick.Err() != nil || len(h.subs) != 0 {
		t.Errorf("%v, %d watchers", quick.Err(), len(h.subs))
	}
	h.Close()
	late := h.Watch()
	if _, open := <-late.C; open || !fault.Is(late.Err(), fault.ShuttingDown) {
		t.Errorf("%v", late.Err())
	}
}

// A reader that began before a turn's end does not put the old state back.
func TestTheCacheForgetsWhatEnded(t *testing.T) {
	c := newCache(10, 10)
	_, _, epoch := c.turn("t")
	c.ended("t")
	c.putTurn(Turn{ID: "t", State: Open}, epoch)
	if _, ok, _ := c.turn("t"); ok {
		t.Error("the cache has the old state")
	}
	_, _, epoch = c.turn("t")
	c.putTurn(Turn{ID: "t", State: Ended}, epoch)
	if _, ok, _ := c.turn("t"); ok {
		t.Error("the cache holds an ended turn")
	}
}

// The cache stays within its bound, whatever is put into it, and gives back what was put last.
func TestTheCacheIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 50).Draw(t, "limit")
		l := newLRU[int](limit)
		last := map[string]int{}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			key := rapid.StringMatching("[a-e]").Draw(t, "key")
			if rapid.Bool().Draw(t, "drop") {
				l.drop(key)
				delete(last, key)
				continue
			}
			size := rapid.Int64Range(1, 20).Draw(t, "size")
			l.put(key, i, size)
			last[key] = i
			if v, ok := l.get(key); !ok || v != i {
				t.Fatalf("%s: %d, %v", key, v, ok)
			}
			var sum int64
			for e := l.order.Front(); e != nil; e = e.Next() {
				it := e.Value.(*item[int])
				sum += it.size
				if it.value != last[it.key] {
					t.Fatalf("%s is %d, it was set to %d", it.key, it.value, last[it.key])
				}
			}
			if sum != l.sum || sum > limit && l.order.Len() > 1 || l.order.Len() != len(l.items) {
				t.Fatalf("sum %d of %d, counted %d", sum, limit, l.sum)
			}
		}
	})
}

// An allowlist that says that nothing of a provider is allowed is right: such a provider is not even started.
func TestReachesNeverHidesAnAllowedTool(t *testing.T) {
	pattern := rapid.SampledFrom([]string{"*", "mcp.*", "mcp.fs.*", "mcp.fs.read", "mcp.fs2.*", "mcp.fs.read.*", "fn.*", "run_command", "mcp.f.*"})
	rapid.Check(t, func(t *rapid.T) {
		a, err := newAllowlist(rapid.SliceOfN(pattern, 0, 3).Draw(t, "tools"), Agent{
			Tools: rapid.SliceOfN(pattern, 0, 3).Draw(t, "agent"), Deny: rapid.SliceOfN(pattern, 0, 2).Draw(t, "deny"),
		})
		if err != nil {
			t.Fatal(err)
		}
		provider := rapid.SampledFrom([]string{"mcp.fs", "mcp.fs2", "mcp.f"}).Draw(t, "provider")
		tool := provider + "." + rapid.SampledFrom([]string{"read", "read.deep", "write"}).Draw(t, "tool")
		if a.allows(tool) && !a.reaches(provider) {
			t.Fatalf("%s is allowed, but its provider is not reached", tool)
		}
	})
}

// Toolsets have one name exactly when everything that is frozen is the same.
func TestAToolsetIsNamedByItsContent(t *testing.T) {
	base := []Tool{{ID: "mcp.a.b", Alias: "a__b", Name: "b", Provider: "mcp.a", ProviderDigest: "d", Wire: "w", Why: "y"}}
	seen := map[string]bool{name(base): true, name(nil): true}
	for i, change := range []func(*Tool){
		func(t *Tool) { t.ID = "mcp.a.c" }, func(t *Tool) { t.Alias = "x" }, func(t *Tool) { t.Name = "c" }, func(t *Tool) { t.Lane = 2 },
		func(t *Tool) { t.Provider = "mcp.b" }, func(t *Tool) { t.ProviderDigest = "e" }, func(t *Tool) { t.Wire = "v" }, func(t *Tool) { t.Semantic = "s" },
		func(t *Tool) { t.Class = 3 }, func(t *Tool) { t.Disposition = 3 }, func(t *Tool) { t.AlwaysGate = true }, func(t *Tool) { t.Why = "z" },
		func(t *Tool) { t.Wire, t.Semantic = strings.Repeat("w", 2), "" },
	} {
		tools := slices.Clone(base)
		change(&tools[0])
		if n := name(tools); seen[n] {
			t.Errorf("change %d has a name that is taken", i)
		} else {
			seen[n] = true
		}
	}
}
