package fingerprint_test

import (
	"testing"

	"github.com/writ-dev/writ/internal/fingerprint"
)

func TestWireSeesEveryByte(t *testing.T) {
	if fingerprint.Wire([]byte(`{"a":1}`)) == fingerprint.Wire([]byte(`{"a": 1}`)) {
		t.Error("one space is another wire fingerprint")
	}
	if got := fingerprint.Wire(nil); got != "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
		t.Error(got)
	}
}

func TestSemanticIgnoresOnlySpelling(t *testing.T) {
	same := [][2]string{
		{`{"b":1,"a":[1, 2]}`, ` {"a":[1,2],"b":1}`},
		{`{"\u0061":"\u00e9\/"}`, `{"a":"é/"}`},
		{`{"x":{"d":1,"c":2}}`, `{"x":{"c":2,"d":1}}`},
	}
	for _, p := range same {
		if semantic(t, p[0]) != semantic(t, p[1]) {
			t.Errorf("%s and %s mean the same", p[0], p[1])
		}
	}
	different := [][2]string{
		{`{"n":9007199254740993}`, `{"n":9007199254740992}`},
		{`{"n":1.0}`, `{"n":1}`},
		{`[1,2]`, `[2,1]`},
		{`{"a":"1"}`, `{"a":1}`},
		{`{"a":null}`, `{}`},
		{`{"a":"<b>"}`, `{"a":"<B>"}`},
	}
	for _, p := range different {
		if semantic(t, p[0]) == semantic(t, p[1]) {
			t.Errorf("%s and %s differ", p[0], p[1])
		}
	}
}

func TestCanonicalForm(t *testing.T) {
	got, err := fingerprint.Canonical([]byte(" {\"b\" : [9007199254740993, 1.0, true, null, \"\\u000a\\\"<\"], \"a\":{ } } "))
	if want := `{"a":{},"b":[9007199254740993,1.0,true,null,"\n\"<"]}`; err != nil || string(got) != want {
		t.Errorf("%s %v", got, err)
	}
}

func TestSemanticRefusesWhatIsNoDefinition(t *testing.T) {
	for _, bad := range []string{``, `{`, `{"a":1,"a":2}`, `{} x`} {
		if got, err := fingerprint.Semantic([]byte(bad)); err == nil {
			t.Errorf("%q gave %s", bad, got)
		}
	}
}

func semantic(t *testing.T, text string) string {
	t.Helper()
	got, err := fingerprint.Semantic([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return got
}
