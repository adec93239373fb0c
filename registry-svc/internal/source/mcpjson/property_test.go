package mcpjson_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/writ-dev/writ/registry-svc/internal/connector"
	"github.com/writ-dev/writ/registry-svc/internal/source/mcpjson"
)

// text is what people may write into a value: anything but NUL, and no reference to a variable.
func text() *rapid.Generator[string] {
	return rapid.StringOfN(rapid.RuneFrom([]rune("aZ09 _-./\\\"'$é漢\U0001F600\t\n&{}:,")), 0, 20, -1).
		Filter(func(s string) bool { return !strings.Contains(s, "${") })
}

func spec() *rapid.Generator[connector.Spec] {
	return rapid.Custom(func(t *rapid.T) connector.Spec {
		s := connector.Spec{
			Transport: "stdio", Command: "/" + text().Draw(t, "command"),
			Args: rapid.SliceOfN(text(), 0, 4).Draw(t, "args"),
			Env:  rapid.MapOfN(rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,6}`), text(), 0, 3).Draw(t, "env"),
		}
		if rapid.Bool().Draw(t, "folder") {
			s.WorkingFolder = "/" + text().Draw(t, "path")
		}
		s.IdleSeconds = rapid.Int32Range(-1, 900).Draw(t, "idle")
		return s
	})
}

// document writes a spec as a person's editor would, by another JSON library.
func document(s connector.Spec) map[string]any {
	d := map[string]any{"command": s.Command, "args": s.Args, "env": s.Env}
	if s.Args == nil {
		delete(d, "args")
	}
	if s.WorkingFolder != "" {
		d["cwd"] = s.WorkingFolder
	}
	switch {
	case s.IdleSeconds < 0:
		d["idle_timeout_seconds"] = 0
	case s.IdleSeconds > 0:
		d["idle_timeout_seconds"] = s.IdleSeconds
	}
	return d
}

// What is written is what is registered, character for character, in every shape and indentation (R15).
func TestWhatIsWrittenIsRegistered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		specs := rapid.MapOfN(rapid.StringMatching(`[a-z][a-z0-9_-]{0,8}`).Filter(func(s string) bool { return !connector.Reserved(s) && s != "servers" }), spec(), 0, 4).Draw(t, "specs")
		entries := map[string]any{}
		for name, s := range specs {
			entries[name] = document(s)
		}
		var doc any = entries
		if shape := rapid.SampledFrom([]string{"", "servers", "mcpServers"}).Draw(t, "shape"); shape != "" {
			doc = map[string]any{shape: entries}
		}
		content, err := json.MarshalIndent(doc, "", rapid.SampledFrom([]string{"", "  ", "\t"}).Draw(t, "indent"))
		if err != nil {
			t.Fatal(err)
		}
		got := mcpjson.Read("f", content, nil)
		if len(got.Problems) != 0 || len(got.Entries) != len(specs) {
			t.Fatalf("%s\n%v", content, got.Problems)
		}
		for _, e := range got.Entries {
			want := specs[e.Name]
			if want.Env == nil {
				want.Env = e.Spec.Env
			}
			if d := cmp.Diff(want, e.Spec, cmp.Comparer(func(a, b []string) bool {
				return strings.Join(a, "\x00") == strings.Join(b, "\x00") && len(a) == len(b)
			})); d != "" {
				t.Fatal(d)
			}
		}
	})
}

// Whatever is in the file: no panic; every problem has a place in it; an entry that counts is a valid connector; and
// nothing that is foreign reaches the terminal as a control character.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"servers":{"fs":{"transport":"stdio","command":"npx","args":["-y"],"env":{"A":"${B:-c}"}}},"inputs":[]}`,
		`{"mcpServers":{"a":{"url":"https://x/","type":"http"}}}`, `{"a":{"command":"x"},"a":{}}`, "{\"\x1b[2J\":{\"\\u202e\":1}}", `{"a":{"command":"x","cwd":"${"}}`, `[`, "\ufeff{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		got := mcpjson.Read("f", content, map[string]map[string]string{"a": {"B": "b"}})
		lines := strings.Count(string(content), "\n") + 1
		for _, p := range got.Problems {
			if p.Line < 1 || p.Line > lines || p.Column < 1 || p.Column > len(content)+1 || p.Text == "" || p.Next == "" {
				t.Errorf("%+v", p)
			}
			if s := p.String(); strings.ContainsAny(s, "\x1b\n\u202e\x00") {
				t.Errorf("%q reaches the terminal", s)
			}
		}
		for _, e := range got.Entries {
			if len(e.Problems) > 0 {
				continue
			}
			if !connector.ValidName(e.Name) || connector.Reserved(e.Name) || len(connector.Validate(e.Spec)) > 0 {
				t.Errorf("%+v counts", e)
			}
		}
	})
}
