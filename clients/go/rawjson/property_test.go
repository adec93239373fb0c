package rawjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/writ-dev/writ/clients/go/rawjson"
	"pgregory.net/rapid"
)

// value draws a JSON value as text, with the spellings that parsers disagree about.
func value(depth int) *rapid.Generator[string] {
	scalars := []*rapid.Generator[string]{
		rapid.SampledFrom([]string{"null", "true", "false", "0", "-0", "1.0", "9007199254740993", "1e400", `"\u0061"`, `"\ud83d\ude00"`, `""`}),
		rapid.Map(rapid.String(), func(s string) string { return string(rawjson.AppendString(nil, s)) }),
	}
	if depth == 0 {
		return rapid.OneOf(scalars...)
	}
	inner := value(depth - 1)
	array := rapid.Map(rapid.SliceOfN(inner, 0, 4), func(v []string) string { return "[ " + strings.Join(v, " ,") + "\n]" })
	object := rapid.Map(rapid.MapOfN(rapid.StringN(0, 4, -1), inner, 0, 20), func(m map[string]string) string {
		var parts []string
		for k, v := range m {
			parts = append(parts, string(rawjson.AppendString(nil, k))+" : "+v)
		}
		return "{" + strings.Join(parts, ",\t") + "}"
	})
	return rapid.OneOf(append(scalars, array, object)...)
}

func TestValidTextIsAcceptedAndReadBackByteForByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(value(3).Draw(t, "text"))
		if err := rawjson.Check(text, rawjson.Limits{}); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !json.Valid(text) {
			t.Fatalf("the generator is wrong: %s", text)
		}
		var joined []byte
		switch rawjson.TypeOf(text) {
		case rawjson.Object:
			for m, err := range rawjson.Members(text) {
				if err != nil {
					t.Fatal(err)
				}
				got, ok, err := rawjson.Get(text, m.Name)
				if !ok || err != nil || !bytes.Equal(got, m.Value) {
					t.Fatalf("Get(%q) of %s: %s %v %v", m.Name, text, got, ok, err)
				}
				joined = append(joined, m.Value...)
			}
		case rawjson.Array:
			for e, err := range rawjson.Elements(text) {
				if err != nil {
					t.Fatal(err)
				}
				joined = append(joined, e...)
			}
		}
		if len(joined) > len(text) {
			t.Fatal("more than there is")
		}
	})
}

func TestANameWrittenTwiceIsFoundHoweverItIsSpelt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.String(), 1, 40, rapid.ID).Draw(t, "names")
		again := rapid.SampledFrom(names).Draw(t, "again")
		var b bytes.Buffer
		b.WriteString("{")
		for _, n := range names {
			b.Write(rawjson.AppendString(nil, n))
			b.WriteString(":0,")
		}
		b.WriteString(spell(t, again) + ":1}")
		var e *rawjson.Error
		if err := rawjson.Check(b.Bytes(), rawjson.Limits{}); !errors.As(err, &e) || e.Kind != rawjson.DuplicateName {
			t.Fatalf("%s: %v", b.Bytes(), err)
		}
	})
}

// spell writes a string with some characters as \u escapes.
func spell(t *rapid.T, s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if r < 0x10000 && rapid.Bool().Draw(t, "escape") {
			b.WriteString(`\u` + hex4(r))
			continue
		}
		inner := rawjson.AppendString(nil, string(r))
		b.Write(inner[1 : len(inner)-1])
	}
	b.WriteByte('"')
	return b.String()
}

func hex4(r rune) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15]})
}

func TestSpliceChangesNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := value(2).Draw(t, "before"), value(2).Draw(t, "after")
		old, fresh := value(2).Draw(t, "old"), value(2).Draw(t, "fresh")
		text := ` {"a":` + before + `,"list":[0, ` + old + "\n],\"z\":" + after + "} "
		got, err := rawjson.Splice([]byte(text), "/list/1", []byte(fresh))
		if want := ` {"a":` + before + `,"list":[0, ` + fresh + "\n],\"z\":" + after + "} "; err != nil || string(got) != want {
			t.Fatalf("%s %v", got, err)
		}
	})
}

func TestStringsSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		for _, text := range []string{string(rawjson.AppendString(nil, s)), spell(t, s)} {
			if got, err := rawjson.String([]byte(text)); err != nil || got != s {
				t.Fatalf("%s became %q, %v", text, got, err)
			}
		}
	})
}

// Whatever Check accepts, the standard library accepts and understands in the
// same way; what it refuses is either refused there too or one of the kinds
// that Writ refuses on purpose.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5e-3,"x\u0061\ud83d\ude00",{"b":null}],"c":true}`, `{"a":1,"\u0061":2}`, `"\ud800"`, "\"\xff\"", `[[[[`,
		`{"aaaaaaaa":"bbbbbbbbbbbbbbbb\"bbbbbbb"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := rawjson.Check(b, rawjson.Limits{})
		var e *rawjson.Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("untyped error %v", err)
		}
		if err == nil {
			if !json.Valid(b) || !utf8.Valid(b) || duplicated(b) {
				t.Fatalf("%q was accepted", b)
			}
			if _, _, err := rawjson.Locate(b, ""); err != nil {
				t.Fatal(err)
			}
			return
		}
		if e.Offset < 0 || e.Offset > len(b) || e.Error() == "" || e.Kind.Word() == "unknown" {
			t.Fatalf("%+v", e)
		}
		switch e.Kind {
		case rawjson.Syntax, rawjson.Empty, rawjson.TrailingBytes:
			if json.Valid(b) {
				t.Fatalf("%q was refused: %v", b, err)
			}
		case rawjson.DuplicateName:
			if json.Valid(b) && !duplicated(b) {
				t.Fatalf("%q has no duplicates: %v", b, err)
			}
		case rawjson.InvalidUTF8:
			if utf8.Valid(b) {
				t.Fatalf("%q is UTF-8: %v", b, err)
			}
		}
	})
}

// duplicated looks for duplicate names with the standard library's tokens.
func duplicated(b []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	type level struct {
		names map[string]bool
		key   bool
	}
	var open []level
	for {
		tok, err := dec.Token()
		if err != nil {
			return !errors.Is(err, io.EOF)
		}
		top := len(open) - 1
		switch v := tok.(type) {
		case json.Delim:
			if v == '}' || v == ']' {
				open = open[:top]
				continue
			}
			if top >= 0 {
				open[top].key = true
			}
			l := level{}
			if v == '{' {
				l = level{names: map[string]bool{}, key: true}
			}
			open = append(open, l)
			continue
		case string:
			if top >= 0 && open[top].names != nil && open[top].key {
				if open[top].names[v] {
					return true
				}
				open[top].names[v] = true
				open[top].key = false
				continue
			}
		}
		if top >= 0 {
			open[top].key = true
		}
	}
}
