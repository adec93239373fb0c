package toolname_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/writ-dev/writ/internal/toolname"
	"pgregory.net/rapid"
)

var legal = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

func TestPlainNamesStayReadable(t *testing.T) {
	for _, c := range [][3]string{
		{"fs", "read_text_file", "fs__read_text_file"},
		{"mail", "create_document", "mail__create_document"},
		{"", "run_command", "run_command"},
	} {
		if got := toolname.Alias(c[0], c[1]); got != c[2] {
			t.Errorf("%s: want %s", got, c[2])
		}
	}
}

func TestOtherNamesGetAHash(t *testing.T) {
	for _, c := range [][2]string{
		{"fs", "a.b"}, {"fs", "créer"}, {"fs", ""}, {"fs", strings.Repeat("x", 100)},
		{"a__b", "c"}, {"a", "b__c"}, {"a_", "b"}, {"a", "_b"}, {"", "a__b"},
	} {
		got := toolname.Alias(c[0], c[1])
		if !legal.MatchString(got) || !regexp.MustCompile(`_[0-9a-f]{10}$`).MatchString(got) {
			t.Errorf("%q: %s", c, got)
		}
	}
}

// Two tools never share an alias, and an alias never changes: a model that
// knew "fs__read" must not reach another tool by it later.
func TestAliasIsLegalPureAndInjective(t *testing.T) {
	part := rapid.OneOf(
		rapid.StringMatching(`[a-c_.]{0,6}`), rapid.StringMatching(`[a-c_]{0,3}_[0-9a-f]{10}`),
		rapid.StringMatching(`[a-z_-]{50,70}`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		s1, t1, s2, t2 := part.Draw(t, "s1"), part.Draw(t, "t1"), part.Draw(t, "s2"), part.Draw(t, "t2")
		a1, a2 := toolname.Alias(s1, t1), toolname.Alias(s2, t2)
		if !legal.MatchString(a1) || a1 != toolname.Alias(s1, t1) {
			t.Fatalf("%q", a1)
		}
		if a1 == a2 && (s1 != s2 || t1 != t2) {
			t.Fatalf("(%q,%q) and (%q,%q) are both %s", s1, t1, s2, t2, a1)
		}
	})
}

func TestCanonicalNamesSplit(t *testing.T) {
	if toolname.Provider("fs") != "mcp.fs" {
		t.Error(toolname.Provider("fs"))
	}
	server, tool, ok := toolname.Split(toolname.MCP("fs", "a.b.c"))
	if !ok || server != "fs" || tool != "a.b.c" {
		t.Error(server, tool, ok)
	}
	for _, bad := range []string{"", "run_command", "mcp.", "mcp.fs", "mcp.fs.", "mcp..x", "mcp.a b.x", "MCP.fs.x"} {
		if _, _, ok := toolname.Split(bad); ok {
			t.Errorf("%q was split", bad)
		}
	}
	if s, ok := toolname.ServerOf("mcp.fs"); s != "fs" || !ok {
		t.Error(s, ok)
	}
	if _, ok := toolname.ServerOf("mcp.fs.x"); ok {
		t.Error("a tool is no provider")
	}
}

func TestCallNames(t *testing.T) {
	turn, call, ok := toolname.ParseCall(toolname.Call("t_1", "a.B-c_9"))
	if !ok || turn != "t_1" || call != "a.B-c_9" {
		t.Error(turn, call, ok)
	}
	for _, bad := range []string{"", "turns/t", "turns/t/calls/", "turns//calls/c", "turns/a/b/calls/c", "turns/t/calls/c/d",
		"turns/t/calls/" + strings.Repeat("c", 129), "turns/t/calls/ü", "turns/t/calls/a b"} {
		if _, _, ok := toolname.ParseCall(bad); ok {
			t.Errorf("%q was accepted", bad)
		}
	}
	if turn, ok := toolname.ParseTurn(toolname.Turn("t_1")); turn != "t_1" || !ok {
		t.Error(turn, ok)
	}
}
