package preview_test

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/writ-dev/writ/permission-svc/internal/preview"
)

func build(args, command string, max int) preview.Preview {
	return preview.Build(preview.Input{Provider: "mcp.fs", Tool: "mcp.fs.write_file", Command: command, Arguments: []byte(args), MaxBytes: max, MaxArguments: 100})
}

// R46: the card names plugin and tool, and shows the arguments in the order given.
func TestWhatACardShows(t *testing.T) {
	p := build(`{"path":"notes/a.txt","n":9007199254740993,"deep":{"b":1,"a":[2]}}`, "", 1<<16)
	if p.Title != "fs · write_file" || !p.Complete || len(p.Warnings) != 0 {
		t.Fatalf("%+v", p)
	}
	want := []preview.Argument{{"path", "notes/a.txt"}, {"n", "9007199254740993"}, {"deep", `{"b":1,"a":[2]}`}}
	if !slices.Equal(p.Arguments, want) {
		t.Fatalf("%+v", p.Arguments)
	}
}

// R46: an ordinary command stands on the card byte for byte.
func TestAnOrdinaryCommandIsExact(t *testing.T) {
	for _, line := range []string{"rm -rf 'a b' \"$X\" \\\n  c", "cat <<'E'\n\tx\nE", "grüße > ünï", "echo привет", "echo 你好 😀"} {
		if p := build(`{}`, line, 1<<16); p.Command != line || len(p.Warnings) > 0 {
			t.Errorf("%q: %q %v", line, p.Command, p.Warnings)
		}
	}
}

// Display is bound to decision: an attacker's text can't hide anything, and nothing that is shown is invisible.
func TestForeignTextIsVisible(t *testing.T) {
	for text, warning := range map[string]string{
		"a\u202egpj.exe": preview.WarnBidi, "a\u2066b": preview.WarnBidi, "a\u200bb": preview.WarnHidden, "\ufeffx": preview.WarnHidden, "a\u00a0b": preview.WarnHidden,
		"x\x1b[2Ky": preview.WarnControl, "x\ry": preview.WarnControl, "a\u0085b": preview.WarnControl, "p\u0430ypal": preview.WarnMixed, "ｒｍ": preview.WarnMixed,
		"hi\U000e0041\U000e0042": preview.WarnTag, "a\ufe0fb": preview.WarnHidden, "a\u3164b": preview.WarnHidden, "a\xffb": preview.WarnEncoding, "a\x00b": preview.WarnControl,
		"a\u2028b": preview.WarnControl, "\U000f0000": preview.WarnHidden,
	} {
		out, found := preview.Escape(text, true)
		if !slices.Contains(found, warning) || !strings.Contains(out, "⟨") {
			t.Errorf("%q: %q %v", text, out, found)
		}
		for _, r := range out {
			if !unicode.IsGraphic(r) || unicode.Is(unicode.Cf, r) {
				t.Errorf("%q shows %U", text, r)
			}
		}
	}
	if out, _ := preview.Escape("a\nb", false); strings.Contains(out, "\n") {
		t.Errorf("a name may not have lines: %q", out)
	}
}

// What could not be shown whole says so, and its digest differs from a whole one's.
func TestWhatIsCutIsNotComplete(t *testing.T) {
	args := `{"content":"` + strings.Repeat("x", 5000) + `"}`
	cut, whole := build(args, "", 1000), build(args, "", 10000)
	if cut.Complete || !whole.Complete || cut.SHA256 == whole.SHA256 {
		t.Fatalf("%v %v", cut.Complete, whole.Complete)
	}
	if p := build(`{"a":1,"b":2}`, "", 16); p.Complete {
		t.Fatalf("%+v", p)
	}
}

// Two different texts never have one digest, however their parts are divided.
func TestTheDigestIsOverEveryPart(t *testing.T) {
	seen := map[string]string{}
	for _, args := range []string{`{"a":"bc"}`, `{"ab":"c"}`, `{"a":"b","c":""}`, `{"a":"b","":"c"}`, `{}`, `{"a":"\u202e"}`, `{"a":"⟨U+202E⟩"}`} {
		d := build(args, "", 1<<16).SHA256
		if other, ok := seen[d]; ok {
			t.Errorf("%s and %s have one digest", args, other)
		}
		seen[d] = args
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		out, _ := preview.Escape(s, false)
		for _, r := range out {
			if !unicode.IsGraphic(r) {
				t.Fatalf("%q shows %U", s, r)
			}
		}
	})
}
