package jsonview_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/writ-dev/writ/mcp-host-svc/internal/jsonview"
)

func TestValuesAreTheServersOwnBytes(t *testing.T) {
	doc := []byte(` { "b" : 9007199254740993 , "a":{"z":1.0,"y":[1,"]}"]}, "e\u0073c":"q\"}", "b": 2 } `)
	var names []string
	for n, v := range jsonview.Members(doc) {
		names = append(names, n+"="+string(v))
	}
	want := []string{`b=9007199254740993`, `a={"z":1.0,"y":[1,"]}"]}`, `esc="q\"}"`, `b=2`}
	if !slices.Equal(names, want) {
		t.Fatalf("members: got %q, want %q", names, want)
	}
	if v, _ := jsonview.Get(doc, "b"); string(v) != "9007199254740993" {
		t.Fatalf("the first of two equal names counts; got %s", v)
	}
	var elems []string
	for e := range jsonview.Elements([]byte(`[1, "a,]", {"x":[ ]} ,null]`)) {
		elems = append(elems, string(e))
	}
	if !slices.Equal(elems, []string{`1`, `"a,]"`, `{"x":[ ]}`, `null`}) {
		t.Fatalf("elements: %q", elems)
	}
}

func TestOtherRootsYieldNothing(t *testing.T) {
	for _, doc := range []string{``, `null`, `[`, `{`, `{"a"`, `{"a":`, `"x`, `{]`, `{"a" 1}`} {
		for n := range jsonview.Members([]byte(doc)) {
			if doc == `{"a":` {
				t.Fatalf("member %q out of %q", n, doc)
			}
		}
		for range jsonview.Elements([]byte(doc)) {
			t.Fatalf("element out of %q", doc)
		}
	}
}

func FuzzViewsAgreeWithEncodingJSON(f *testing.F) {
	for _, s := range []string{`{"a":1,"b":[{}]}`, `[1,2,[3]]`, `{"\ud800":"\\"}`, "{\"a\":\"\xff\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		count := 0
		for _, v := range jsonview.Members(b) {
			count++
			if json.Valid(b) && !json.Valid(v) {
				t.Fatalf("member value %q of valid %q is not valid", v, b)
			}
		}
		for v := range jsonview.Elements(b) {
			if json.Valid(b) && !json.Valid(v) {
				t.Fatalf("element %q of valid %q is not valid", v, b)
			}
		}
		var m map[string]json.RawMessage
		if json.Unmarshal(b, &m) == nil && count < len(m) {
			t.Fatalf("%d members seen of %d in %q", count, len(m), b)
		}
	})
}
