package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/writ-dev/writ/internal/rawjson"
)

// arguments builds a call's argument bytes from the words behind the tool's name: one JSON object as it stands, "@FILE" or
// "-" for one that is read, or key=value pairs. A value is a string unless the tool's schema says number, integer, boolean,
// array, object or null; `key:=JSON` says so itself. Bytes that were given as JSON are never rewritten.
func (a *app) arguments(words []string, definition []byte) ([]byte, error) {
	if len(words) == 0 {
		return []byte("{}"), nil
	}
	if len(words) == 1 {
		switch w := words[0]; {
		case strings.HasPrefix(strings.TrimSpace(w), "{"):
			return []byte(w), nil
		case w == "-":
			return readBounded(a.streams.In)
		case strings.HasPrefix(w, "@"):
			f, err := os.Open(w[1:])
			if err != nil {
				return nil, err
			}
			defer f.Close()
			return readBounded(f)
		}
	}
	types := schemaTypes(definition)
	var b bytes.Buffer
	b.WriteByte('{')
	for i, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok || key == "" || key == ":" {
			return nil, usagef("%q is no argument: write key=value, key:=JSON, or one JSON object", w)
		}
		raw := false
		if k, typed := strings.CutSuffix(key, ":"); typed {
			key, raw = k, true
		} else if t := types[key]; t != "" && t != "string" {
			raw = true
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(quote(key))
		b.WriteByte(':')
		if raw {
			if !json.Valid([]byte(value)) {
				return nil, usagef("%s: %q is not JSON, and the tool takes %s there", key, value, orJSON(types[key]))
			}
			b.WriteString(value)
		} else {
			b.Write(quote(value))
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func orJSON(t string) string {
	if t == "" {
		return "JSON"
	}
	return "a value of type " + t
}

func quote(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return []byte(`""`)
	}
	return bytes.TrimSpace(b.Bytes())
}

// readBounded reads a little more than the server takes, so that its own limit answers.
func readBounded(r io.Reader) ([]byte, error) {
	const most = 3 << 20
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && len(b) > most {
		err = fmt.Errorf("more than %d bytes of arguments: the limit is arguments_max_bytes, 1048576", most)
	}
	return b, err
}

// schemaTypes reads the simple types of the properties of a tool's inputSchema.
func schemaTypes(definition []byte) map[string]string {
	schema, ok, err := rawjson.Get(definition, "inputSchema")
	if err != nil || !ok {
		return nil
	}
	var s struct {
		Properties map[string]struct {
			Type json.RawMessage `json:"type"`
		} `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return nil
	}
	types := map[string]string{}
	for name, p := range s.Properties {
		var t string
		if json.Unmarshal(p.Type, &t) == nil {
			types[name] = t
		}
	}
	return types
}
