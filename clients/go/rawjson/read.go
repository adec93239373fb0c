package rawjson

import (
	"iter"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Member is one name and value of an object.
type Member struct {
	Name  string // unescaped
	Value []byte // a sub-slice of the object's text, without white space around it
}

// Members iterates over the members of an object in the order in which they
// stand. What is wrong with the text comes as the error of the last pair, an
// *Error. Duplicate names are handed out as they stand: see Check.
func Members(b []byte) iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		for p, err := range positions(b, '{') {
			if err != nil {
				yield(Member{}, err)
				return
			}
			if !yield(Member{p.name.text(b), b[p.start:p.end]}, nil) {
				return
			}
		}
	}
}

// Elements iterates over the values of an array, each a sub-slice of b.
func Elements(b []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for p, err := range positions(b, '[') {
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(b[p.start:p.end], nil) {
				return
			}
		}
	}
}

// position is where a member or an element stands in the text.
type position struct {
	name       name
	start, end int
}

// positions walks the root container of b, which must begin with open.
func positions(b []byte, open byte) iter.Seq2[position, error] {
	return func(yield func(position, error) bool) {
		var s scanner
		s.init(b, maxReadDepth, 0)
		if err := s.walk(open, func(p position) bool { return yield(p, nil) }); err != nil {
			yield(position{}, err)
		}
	}
}

// walk calls each with every member until it returns false, after which no error is reported.
func (s *scanner) walk(open byte, each func(position) bool) error {
	end, want := byte('}'), Object
	if open == '[' {
		end, want = ']', Array
	}
	if s.i = skipSpace(s.b, s.i); !s.at(open) {
		return wrongType(s.b, s.i, want)
	}
	if err := s.enter(); err != nil {
		return err
	}
	done := s.at(end)
	if done {
		s.i++
	}
	for n := 0; !done; n++ {
		var p position
		var err *Error
		if open == '{' {
			if p.name, err = s.name(); err != nil {
				return err
			}
		}
		p.start = s.i
		if err = s.value(); err != nil {
			if open == '{' {
				return err.within(p.name.text(s.b))
			}
			return err.within(strconv.Itoa(n))
		}
		p.end = s.i
		if !each(p) {
			return nil
		}
		if done, err = s.next(end); err != nil {
			return err
		}
	}
	if s.i = skipSpace(s.b, s.i); s.i != len(s.b) {
		return &Error{Kind: TrailingBytes, Offset: s.i}
	}
	return nil
}

// Get returns the value of a name in an object, a sub-slice of b. The whole
// object is read, so that a second value for the same name is an error too.
func Get(b []byte, key string) (raw []byte, ok bool, err error) {
	start, end, ok, err := find(b, key)
	if !ok || err != nil {
		return nil, false, err
	}
	return b[start:end], true, nil
}

func find(b []byte, key string) (start, end int, ok bool, err error) {
	for p, err := range positions(b, '{') {
		if err != nil {
			return 0, 0, false, err
		}
		if !p.name.is(b, key) {
			continue
		}
		if ok {
			e := &Error{Kind: DuplicateName, Offset: p.name.start - 1}
			return 0, 0, false, e.within(key)
		}
		start, end, ok = p.start, p.end, true
	}
	return start, end, ok, nil
}

func (n name) is(b []byte, key string) bool {
	if !n.escaped {
		return string(b[n.start:n.end]) == key
	}
	return n.text(b) == key
}

// Locate returns where the value that a JSON Pointer (RFC 6901) names stands:
// b[start:end] is its text. "" is the root. The error for a pointer that
// leads nowhere has Kind NotFound.
func Locate(b []byte, pointer string) (start, end int, err error) {
	start = skipSpace(b, 0)
	for end = len(b); end > start && isSpace(b[end-1]); {
		end--
	}
	if pointer != "" && pointer[0] != '/' {
		return 0, 0, &Error{Kind: NotFound, Path: pointer, Detail: `a JSON Pointer is empty or begins with "/"`}
	}
	done := ""
	for rest := pointer; rest != ""; {
		var step string
		step, rest = cutStep(rest)
		done = pointer[:len(pointer)-len(rest)]
		from, to, ok, err := child(b[start:end], step)
		if err != nil {
			return 0, 0, err
		}
		if !ok {
			return 0, 0, &Error{Kind: NotFound, Offset: start, Path: done}
		}
		start, end = start+from, start+to
	}
	return start, end, nil
}

// cutStep takes the first reference token off a pointer that begins with "/".
func cutStep(pointer string) (step, rest string) {
	step = pointer[1:]
	if i := strings.IndexByte(step, '/'); i >= 0 {
		step, rest = step[:i], step[i:]
	}
	return strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~"), rest
}

func escapePointer(step string) string {
	return strings.ReplaceAll(strings.ReplaceAll(step, "~", "~0"), "/", "~1")
}

func child(b []byte, step string) (start, end int, ok bool, err error) {
	if TypeOf(b) != Array {
		if TypeOf(b) != Object {
			return 0, 0, false, nil
		}
		return find(b, step)
	}
	index, convErr := strconv.Atoi(step)
	if convErr != nil || index < 0 || step != strconv.Itoa(index) {
		return 0, 0, false, nil
	}
	n := 0
	for p, err := range positions(b, '[') {
		if err != nil {
			return 0, 0, false, err
		}
		if n == index {
			return p.start, p.end, true, nil
		}
		n++
	}
	return 0, 0, false, nil
}

// Splice returns a copy of b in which the value that the JSON Pointer names
// is replaced by replacement, and every other byte is as it was. The
// replacement is put in as it is: it must be one JSON value.
func Splice(b []byte, pointer string, replacement []byte) ([]byte, error) {
	start, end, err := Locate(b, pointer)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(b)-(end-start)+len(replacement))
	out = append(out, b[:start]...)
	out = append(out, replacement...)
	return append(out, b[end:]...), nil
}

// String decodes a JSON string.
func String(raw []byte) (string, error) {
	var s scanner
	s.init(raw, 1, 0)
	if s.i = skipSpace(raw, 0); !s.at('"') {
		return "", wrongType(raw, s.i, Str)
	}
	start := s.i + 1
	escaped, err := s.str()
	if err != nil {
		return "", err
	}
	n := name{start: start, end: s.i - 1, escaped: escaped}
	if s.i = skipSpace(raw, s.i); s.i != len(raw) {
		return "", &Error{Kind: TrailingBytes, Offset: s.i}
	}
	return n.text(raw), nil
}

// Int64 decodes a JSON number that is written as a whole number: no point and no exponent.
func Int64(raw []byte) (int64, error) {
	var s scanner
	s.init(raw, 1, 0)
	if TypeOf(raw) != Number {
		return 0, wrongType(raw, skipSpace(raw, 0), Number)
	}
	if err := s.document(); err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(raw))
	if strings.ContainsAny(text, ".eE") {
		return 0, &Error{Kind: WrongType, Detail: "a whole number without point and exponent is needed"}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, &Error{Kind: OutOfRange, Detail: "64 bits with a sign hold the number"}
	}
	return n, nil
}

// Boolean decodes true or false.
func Boolean(raw []byte) (bool, error) {
	switch strings.TrimSpace(string(raw)) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, wrongType(raw, skipSpace(raw, 0), Bool)
}

func wrongType(b []byte, at int, want Type) *Error {
	return &Error{Kind: WrongType, Offset: at, Detail: want.String() + " is needed, this is " + TypeOf(b).String()}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// AppendString appends s as a JSON string: only what must be escaped is
// escaped, and bytes that are no UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"', c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		case c < utf8.RuneSelf:
			dst = append(dst, c)
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
			continue
		}
		i++
	}
	return append(dst, '"')
}

// unescape appends the decoded form of a string's checked inside to dst.
func unescape(dst, in []byte) []byte {
	for i := 0; i < len(in); i++ {
		if in[i] != '\\' {
			dst = append(dst, in[i])
			continue
		}
		i++
		switch in[i] {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, _ := hex4(in, i+1)
			i += 4
			if utf16.IsSurrogate(r) {
				low, _ := hex4(in, i+3)
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, in[i])
		}
	}
	return dst
}
