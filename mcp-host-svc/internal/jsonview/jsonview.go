// Package jsonview looks into JSON text that an MCP server wrote, without
// decoding it into Go values and without ever writing it anew: every value that
// it returns is a sub-slice of the input, so that definitions and results stay
// the server's own bytes.
//
// It is lenient on purpose. The text must be valid JSON (Valid); beyond that it
// accepts what servers really send: invalid UTF-8 inside strings, duplicate
// names (the first one counts) and any depth that encoding/json accepts. What
// Writ itself relies on is checked strictly elsewhere (internal/rawjson).
package jsonview

import (
	"bytes"
	"encoding/json"
	"iter"
)

// Valid reports whether b is one valid JSON value.
func Valid(b []byte) bool { return json.Valid(b) }

// Members walks the members of the object b in the order in which they are
// written. The name is unescaped; the value is the raw text without surrounding
// blanks. It yields nothing when b is not an object.
func Members(b []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		i := skipSpace(b, 0)
		if i >= len(b) || b[i] != '{' {
			return
		}
		i++
		for {
			i = skipSpace(b, i)
			if i >= len(b) || b[i] != '"' {
				return
			}
			nameEnd := endOfString(b, i)
			name, ok := String(b[i:nameEnd])
			i = skipSpace(b, nameEnd)
			if !ok || i >= len(b) || b[i] != ':' {
				return
			}
			start := skipSpace(b, i+1)
			end := endOfValue(b, start)
			if end <= start || !yield(name, b[start:end]) {
				return
			}
			i = skipSpace(b, end)
			if i >= len(b) || b[i] != ',' {
				return
			}
			i++
		}
	}
}

// Get returns the raw value of the first member called name.
func Get(b []byte, name string) ([]byte, bool) {
	for n, v := range Members(b) {
		if n == name {
			return v, true
		}
	}
	return nil, false
}

// Elements walks the elements of the array b. It yields nothing when b is not
// an array.
func Elements(b []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		i := skipSpace(b, 0)
		if i >= len(b) || b[i] != '[' {
			return
		}
		i++
		for {
			start := skipSpace(b, i)
			end := endOfValue(b, start)
			if end <= start || !yield(b[start:end]) {
				return
			}
			i = skipSpace(b, end)
			if i >= len(b) || b[i] != ',' {
				return
			}
			i++
		}
	}
}

// String returns the value of the JSON string raw.
func String(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	body := raw[1 : len(raw)-1]
	if bytes.IndexByte(body, '\\') < 0 && raw[len(raw)-1] == '"' {
		return string(body), true
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}

// GetString returns the string value of the first member called name.
func GetString(b []byte, name string) (string, bool) {
	raw, ok := Get(b, name)
	if !ok {
		return "", false
	}
	return String(raw)
}

// IsTrue reports whether the first member called name is the literal true.
func IsTrue(b []byte, name string) bool {
	raw, ok := Get(b, name)
	return ok && string(raw) == "true"
}

// Kind returns the first byte of the value: '{', '[', '"', 't', 'f', 'n', a
// digit or '-'; 0 when there is none.
func Kind(b []byte) byte {
	i := skipSpace(b, 0)
	if i >= len(b) {
		return 0
	}
	return b[i]
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// endOfString returns the index behind the string that begins at i.
func endOfString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// endOfValue returns the index behind the value that begins at i.
func endOfValue(b []byte, i int) int {
	if i >= len(b) {
		return i
	}
	switch b[i] {
	case '"':
		return endOfString(b, i)
	case '{', '[':
		return endOfContainer(b, i)
	}
	for i < len(b) {
		switch b[i] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return i
		}
		i++
	}
	return i
}

func endOfContainer(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = endOfString(b, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return len(b)
}
