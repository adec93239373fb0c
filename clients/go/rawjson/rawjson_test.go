package rawjson_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/writ-dev/writ/clients/go/rawjson"
)

func TestCheckAccepts(t *testing.T) {
	for _, text := range []string{
		`null`, ` true `, `false`, `0`, `-0`, `1.5e-7`, `1E+400`, `9007199254740993`,
		`"x"`, `"\ud83d\ude00"`, `"\u0000"`, `"é😀"`, `[]`, `[ ]`, `{}`, "{\r\n\t}", `[1,[2,{"a":[]}]]`,
		`{"a":1,"A":2}`, `{"a":{"a":{"a":1}}}`, `{"":1}`,
	} {
		if err := rawjson.Check([]byte(text), rawjson.Limits{}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestCheckRefusesWithKindPlaceAndPath(t *testing.T) {
	cases := []struct {
		text   string
		kind   rawjson.Kind
		offset int
		path   string
	}{
		{``, rawjson.Empty, 0, ""},
		{"  \n", rawjson.Empty, 3, ""},
		{`{} {}`, rawjson.TrailingBytes, 3, ""},
		{`1 2`, rawjson.TrailingBytes, 2, ""},
		{"\ufeff{}", rawjson.Syntax, 0, ""},
		{`01`, rawjson.TrailingBytes, 1, ""},
		{`-`, rawjson.Syntax, 1, ""},
		{`+1`, rawjson.Syntax, 0, ""},
		{`1.`, rawjson.Syntax, 2, ""},
		{`1e`, rawjson.Syntax, 2, ""},
		{`NaN`, rawjson.Syntax, 0, ""},
		{`nul`, rawjson.Syntax, 0, ""},
		{`True`, rawjson.Syntax, 0, ""},
		{`'a'`, rawjson.Syntax, 0, ""},
		{`[1,]`, rawjson.Syntax, 3, "/1"},
		{`[1`, rawjson.Syntax, 2, ""},
		{`{"a":1,}`, rawjson.Syntax, 7, ""},
		{`{"a" 1}`, rawjson.Syntax, 5, ""},
		{`{a:1}`, rawjson.Syntax, 1, ""},
		{`{"a":}`, rawjson.Syntax, 5, "/a"},
		{`[1}`, rawjson.Syntax, 2, ""},
		{`// c`, rawjson.Syntax, 0, ""},
		{`"abc`, rawjson.Syntax, 0, ""},
		{`"\x"`, rawjson.Syntax, 1, ""},
		{`"\u12g4"`, rawjson.Syntax, 1, ""},
		{"\"a\nb\"", rawjson.Syntax, 2, ""},
		{`{"a":1,"b":{},"a":2}`, rawjson.DuplicateName, 14, "/a"},
		{`{"a":1,"\u0061":2}`, rawjson.DuplicateName, 7, "/a"},
		{`{"\u0061":1,"a":2}`, rawjson.DuplicateName, 12, "/a"},
		{`{"\ud83d\ude00":1,"😀":2}`, rawjson.DuplicateName, 18, "/😀"},
		{`{"x":[0,{"p/q":{"~":1,"~":2}}]}`, rawjson.DuplicateName, 22, "/x/1/p~1q/~0"},
		{`["ok","` + "\xff" + `"]`, rawjson.InvalidUTF8, 7, "/1"},
		{"\"\xed\xa0\x80\"", rawjson.InvalidUTF8, 1, ""}, // a surrogate in UTF-8 clothes
		{"\"\xc0\xaf\"", rawjson.InvalidUTF8, 1, ""},     // overlong
		{`"\ud800"`, rawjson.LoneSurrogate, 1, ""},
		{`"\udc00\ud800"`, rawjson.LoneSurrogate, 1, ""},
		{`"\ud800\ud800"`, rawjson.LoneSurrogate, 1, ""},
		{`{"\ud800":1}`, rawjson.LoneSurrogate, 2, ""},
	}
	for _, c := range cases {
		err := rawjson.Check([]byte(c.text), rawjson.Limits{})
		var e *rawjson.Error
		if !errors.As(err, &e) {
			t.Errorf("%q was accepted", c.text)
			continue
		}
		if e.Kind != c.kind || e.Offset != c.offset || e.Path != c.path {
			t.Errorf("%q: got %v at %d in %q, want %v at %d in %q", c.text, e.Kind, e.Offset, e.Path, c.kind, c.offset, c.path)
		}
	}
}

func TestLimitsStandInTheError(t *testing.T) {
	deep := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	if err := rawjson.Check(deep(64), rawjson.Limits{}); err != nil {
		t.Fatalf("64 levels are within the default: %v", err)
	}
	for name, c := range map[string]struct {
		text   []byte
		limits rawjson.Limits
		kind   rawjson.Kind
		limit  int
	}{
		"max_depth": {deep(65), rawjson.Limits{}, rawjson.TooDeep, 64},
		"max_bytes": {bytes.Repeat([]byte(" "), 2<<20), rawjson.Limits{}, rawjson.TooLarge, 1 << 20},
		"max_names": {[]byte(`{"a":1,"b":{"c":2}}`), rawjson.Limits{MaxNames: 2}, rawjson.TooManyNames, 2},
	} {
		var e *rawjson.Error
		if err := rawjson.Check(c.text, c.limits); !errors.As(err, &e) || e.Kind != c.kind || e.Limit != c.limit {
			t.Errorf("%s: %v", name, err)
		} else if e.Kind.LimitName() != name || !strings.Contains(e.Error(), fmt.Sprint(c.limit)) {
			t.Errorf("%s is not named in %q", name, e)
		}
	}
}

func TestManyNamesStayExactAndQuick(t *testing.T) {
	object := func(names int, last string) []byte {
		var b bytes.Buffer
		b.WriteByte('{')
		for i := range names {
			fmt.Fprintf(&b, `"n%d":%d,`, i, i)
		}
		b.WriteString(last + `:0}`)
		return b.Bytes()
	}
	for _, n := range []int{15, 16, 17, 31, 32, 33, 64, 1000, 60000} {
		if err := rawjson.Check(object(n, `"last"`), rawjson.Limits{}); err != nil {
			t.Errorf("%d names: %v", n, err)
		}
		for _, again := range []string{`"n0"`, fmt.Sprintf(`"n%d"`, n-1), `"\u006e0"`} {
			var e *rawjson.Error
			if err := rawjson.Check(object(n, again), rawjson.Limits{}); !errors.As(err, &e) || e.Kind != rawjson.DuplicateName {
				t.Errorf("%d names and %s again: %v", n, again, err)
			}
		}
	}
}

func TestErrorPathIsBounded(t *testing.T) {
	long := strings.Repeat("n", 200)
	text := `{"` + long + `":{"` + long + `":{"` + long + `":x}}}`
	var e *rawjson.Error
	if err := rawjson.Check([]byte(text), rawjson.Limits{}); !errors.As(err, &e) || len(e.Path) > 300 {
		t.Fatalf("%v", err)
	}
}

func TestCheckObject(t *testing.T) {
	for text, kind := range map[string]string{
		`[]`: "an array", `"x"`: "a string", `null`: "null", `1`: "a number", `true`: "a boolean",
	} {
		err := rawjson.CheckObject([]byte(text), rawjson.Limits{})
		var e *rawjson.Error
		if !errors.As(err, &e) || e.Kind != rawjson.NotObject || !strings.Contains(err.Error(), kind) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := rawjson.CheckObject([]byte(" {} "), rawjson.Limits{}); err != nil {
		t.Error(err)
	}
}

func TestReadersKeepBytes(t *testing.T) {
	text := []byte(`{"n": 9007199254740993 , "list":[1.0, {"z":1,"a":2},"\u0061"], "\u0061":"A\/\n"}`)
	raw, ok, err := rawjson.Get(text, "n")
	if err != nil || !ok || string(raw) != "9007199254740993" {
		t.Fatalf("%s %v %v", raw, ok, err)
	}
	raw, ok, err = rawjson.Get(text, "a") // written with an escape
	if s, _ := rawjson.String(raw); err != nil || !ok || s != "A/\n" {
		t.Fatalf("%q %v %v", s, ok, err)
	}
	if _, ok, err := rawjson.Get(text, "N"); ok || err != nil {
		t.Fatal("names are case-sensitive")
	}
	var names, values []string
	for m, err := range rawjson.Members(text) {
		if err != nil {
			t.Fatal(err)
		}
		names, values = append(names, m.Name), append(values, string(m.Value))
	}
	if strings.Join(names, " ") != "n list a" || values[1] != `[1.0, {"z":1,"a":2},"\u0061"]` {
		t.Fatalf("%q %q", names, values)
	}
	var elements []string
	for e, err := range rawjson.Elements([]byte(values[1])) {
		if err != nil {
			t.Fatal(err)
		}
		elements = append(elements, string(e))
	}
	if strings.Join(elements, "|") != `1.0|{"z":1,"a":2}|"\u0061"` {
		t.Fatalf("%q", elements)
	}
}

func TestReadersReportWhatIsWrong(t *testing.T) {
	if _, _, err := rawjson.Get([]byte(`{"k":1,"\u006b":2}`), "k"); err == nil {
		t.Error("two values for one name: which one is meant?")
	}
	if _, _, err := rawjson.Get([]byte(`[1]`), "k"); err == nil {
		t.Error("an array has no names")
	}
	if _, _, err := rawjson.Get([]byte(`{"k":1} x`), "k"); err == nil {
		t.Error("trailing text")
	}
	for _, bad := range []string{`{`, `{"a":1`, `{"a":[}`, `x`, ``} {
		var last error
		for _, err := range rawjson.Members([]byte(bad)) {
			last = err
		}
		if last == nil {
			t.Errorf("Members(%q) ended without an error", bad)
		}
	}
}

func TestSplice(t *testing.T) {
	text := []byte(" {\"a\" : [ 1,{\"data\":\"QUJD\" , \"x\":9007199254740993}\t], \"a/b\":{\"~\":0}}\n")
	got, err := rawjson.Splice(text, "/a/1/data", []byte(`"blob"`))
	want := strings.Replace(string(text), `"QUJD"`, `"blob"`, 1)
	if err != nil || string(got) != want {
		t.Fatalf("%s %v", got, err)
	}
	if got, err = rawjson.Splice(text, "/a~1b/~0", []byte(`7`)); err != nil || !bytes.Contains(got, []byte(`{"~":7}`)) {
		t.Fatalf("%s %v", got, err)
	}
	if got, err = rawjson.Splice(text, "", []byte(`7`)); err != nil || string(got) != " 7\n" {
		t.Fatalf("%q %v", got, err)
	}
	for _, missing := range []string{"/b", "/a/2", "/a/-", "/a/01", "/a/0/x", "a"} {
		var e *rawjson.Error
		if _, err := rawjson.Splice(text, missing, nil); !errors.As(err, &e) || e.Kind != rawjson.NotFound {
			t.Errorf("%s: %v", missing, err)
		}
	}
}

func TestScalars(t *testing.T) {
	if n, err := rawjson.Int64([]byte("9007199254740993")); n != 9007199254740993 || err != nil {
		t.Error(n, err)
	}
	for _, bad := range []string{`1.0`, `1e3`, `"1"`, `9223372036854775808`, `01`, `1 2`, ``} {
		if n, err := rawjson.Int64([]byte(bad)); err == nil {
			t.Errorf("%q gave %d", bad, n)
		}
	}
	if v, err := rawjson.Boolean([]byte(" true ")); !v || err != nil {
		t.Error(v, err)
	}
	if _, err := rawjson.Boolean([]byte("1")); err == nil {
		t.Error("1 is no boolean")
	}
	for _, bad := range []string{`1`, `"a`, `"a" "b"`, `"\ud800"`} {
		if s, err := rawjson.String([]byte(bad)); err == nil {
			t.Errorf("%q gave %q", bad, s)
		}
	}
}

func kibibyte() []byte {
	var b bytes.Buffer
	b.WriteString(`{"path":"/work/a/b/c.txt","edits":[`)
	for i := 0; b.Len() < 960; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"line":%d,"old":"some text \"here\"","new":"other text"}`, i)
	}
	b.WriteString(`],"flag":true}`)
	return b.Bytes()
}

func TestCheckAllocatesNothing(t *testing.T) {
	text := kibibyte()
	if n := testing.AllocsPerRun(100, func() { _ = rawjson.CheckObject(text, rawjson.Limits{}) }); n > 1 {
		t.Errorf("%v allocations for %d bytes", n, len(text))
	}
}

func BenchmarkCheckObject1KiB(b *testing.B) {
	text := kibibyte()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if err := rawjson.CheckObject(text, rawjson.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}
