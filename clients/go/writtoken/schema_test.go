package writtoken_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// The schema and the code name the same claims, and the same ones are required.
func TestSchemaSaysWhatTheCodeDoes(t *testing.T) {
	b, err := os.ReadFile("../../../proto/writ.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(b, &schema); err != nil {
		t.Fatal(err)
	}
	compare(t, "", schema, parse(t, payloadOf(t, full())), parse(t, payloadOf(t, claims())))
}

func parse(t *testing.T, text string) map[string]any {
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// compare walks the objects of the schema beside a writ with every claim and one with the fewest.
func compare(t *testing.T, path string, schema, most, least map[string]any) {
	properties := schema["properties"].(map[string]any)
	for name, sub := range properties {
		value, ok := most[name]
		if !ok {
			t.Errorf("%s%s is in the schema only", path, name)
			continue
		}
		inner, fewest := sub.(map[string]any), least[name]
		if list, ok := value.([]any); ok && len(list) > 0 {
			inner, _ = inner["items"].(map[string]any)
			value, fewest = list[0], nil
		}
		if choice, ok := inner["oneOf"].([]any); ok {
			inner = choice[1].(map[string]any)
		}
		if child, ok := value.(map[string]any); ok {
			fewest, _ := fewest.(map[string]any)
			compare(t, path+name+".", inner, child, fewest)
		}
	}
	for name := range most {
		if _, ok := properties[name]; !ok {
			t.Errorf("%s%s is in the code only", path, name)
		}
	}
	if least == nil || strings.HasPrefix(path, "exec") {
		return
	}
	var required []string
	for _, name := range schema["required"].([]any) {
		required = append(required, name.(string))
	}
	for name := range properties {
		if _, always := least[name]; always != slices.Contains(required, name) {
			t.Errorf("%s%s: required in the schema: %v, always written: %v", path, name, !always, always)
		}
	}
}
