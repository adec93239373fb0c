package rawjson

import (
	"encoding/binary"
	"hash/maphash"
	"strconv"
	"unicode/utf8"
)

// linearNames is how many names of one object are compared one by one; a
// larger object gets a hash table, so that many names cost no quadratic time.
const linearNames = 16

// name is one name of an object that is being read: the bytes between its quotes.
type name struct {
	start, end int
	escaped    bool
}

// scanner walks one text. It holds the names of all objects that are open,
// innermost last, in one slice.
type scanner struct {
	b        []byte
	i        int
	depth    int
	maxDepth int
	maxNames int // 0: names are neither counted nor compared
	count    int
	names    []name
	seed     maphash.Seed // made when the first table is
}

func (s *scanner) init(b []byte, maxDepth, maxNames int) {
	s.b, s.maxDepth, s.maxNames = b, maxDepth, maxNames
}

// document reads one value and insists that nothing follows.
func (s *scanner) document() error {
	s.i = skipSpace(s.b, s.i)
	if s.i == len(s.b) {
		return &Error{Kind: Empty, Offset: s.i}
	}
	if err := s.value(); err != nil {
		return err
	}
	if s.i = skipSpace(s.b, s.i); s.i != len(s.b) {
		return &Error{Kind: TrailingBytes, Offset: s.i}
	}
	return nil
}

// value reads one value that begins at s.i. It returns *Error, not error, so
// that a nil can be compared without an interface on the hot path.
func (s *scanner) value() *Error {
	if s.i >= len(s.b) {
		return s.syntax("a value is missing")
	}
	switch c := s.b[s.i]; {
	case c == '{':
		return s.object()
	case c == '[':
		return s.array()
	case c == '"':
		_, err := s.str()
		return err
	case c == '-', c >= '0' && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return s.syntax("a value can't begin with " + byteText(s.b[s.i]))
}

func (s *scanner) enter() *Error {
	if s.depth++; s.depth > s.maxDepth {
		return &Error{Kind: TooDeep, Offset: s.i, Limit: s.maxDepth, Got: s.depth}
	}
	s.i = skipSpace(s.b, s.i+1)
	return nil
}

func (s *scanner) array() *Error {
	if err := s.enter(); err != nil {
		return err
	}
	if s.at(']') {
		return s.leave()
	}
	for n := 0; ; n++ {
		if err := s.value(); err != nil {
			return err.within(strconv.Itoa(n))
		}
		if done, err := s.next(']'); done || err != nil {
			return err
		}
	}
}

func (s *scanner) object() *Error {
	if err := s.enter(); err != nil {
		return err
	}
	if s.at('}') {
		return s.leave()
	}
	if s.names == nil && s.maxNames > 0 {
		s.names = make([]name, 0, linearNames)
	}
	seen := nameSet{base: len(s.names)}
	for {
		n, err := s.name()
		if err != nil {
			return err
		}
		if s.maxNames > 0 {
			if err := s.remember(n, &seen); err != nil {
				return err
			}
		}
		if err := s.value(); err != nil {
			return err.within(n.text(s.b))
		}
		if done, err := s.next('}'); done || err != nil {
			s.names = s.names[:seen.base]
			return err
		}
	}
}

// name reads a name and the colon behind it, up to the start of its value.
func (s *scanner) name() (name, *Error) {
	if !s.at('"') {
		return name{}, s.syntax("a name in quotes is needed")
	}
	start := s.i + 1
	escaped, err := s.str()
	if err != nil {
		return name{}, err
	}
	n := name{start: start, end: s.i - 1, escaped: escaped}
	if s.i = skipSpace(s.b, s.i); !s.at(':') {
		return name{}, s.syntax("a colon is needed after a name")
	}
	s.i = skipSpace(s.b, s.i+1)
	return n, nil
}

// next steps over a comma to the next member, or over the end of the container.
func (s *scanner) next(end byte) (done bool, err *Error) {
	s.i = skipSpace(s.b, s.i)
	switch {
	case s.at(end):
		return true, s.leave()
	case s.at(','):
		s.i = skipSpace(s.b, s.i+1)
		return false, nil
	}
	return false, s.syntax("a comma or " + strconv.QuoteRune(rune(end)) + " is needed")
}

func (s *scanner) leave() *Error {
	s.depth--
	s.i++
	return nil
}

func (s *scanner) at(c byte) bool { return s.i < len(s.b) && s.b[s.i] == c }

// str reads a string that begins at s.i and says whether it has escapes.
func (s *scanner) str() (escaped bool, err *Error) {
	b, start, i := s.b, s.i, s.i+1
	for i < len(b) {
		for i+8 <= len(b) && allPlain(binary.LittleEndian.Uint64(b[i:])) {
			i += 8
		}
		if i == len(b) {
			break
		}
		switch c := b[i]; {
		case c == '"':
			s.i = i + 1
			return escaped, nil
		case c == '\\':
			escaped = true
			n, err := escapeLen(b, i)
			if err != nil {
				return true, err
			}
			i += n
		case c < 0x20:
			return escaped, &Error{Kind: Syntax, Offset: i, Detail: "control character " + byteText(c) + " in a string"}
		case c < utf8.RuneSelf:
			i++
		default:
			r, n := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && n == 1 {
				return escaped, &Error{Kind: InvalidUTF8, Offset: i}
			}
			i += n
		}
	}
	return escaped, &Error{Kind: Syntax, Offset: start, Detail: "a string without an end"}
}

// allPlain reports that none of eight bytes is a quote, a backslash, a control
// character or outside ASCII. It may miss a plain eight, never a special byte:
// in each term a subtraction carries the high bit of a byte that is (or
// borrows from) a special one.
func allPlain(x uint64) bool {
	const ones = 0x0101010101010101
	control := x - ones*0x20
	quote := (x ^ ones*'"') - ones
	backslash := (x ^ ones*'\\') - ones
	return (x|control|quote|backslash)&(ones*0x80) == 0
}

// escapeLen checks the escape at b[i], which is a backslash, and returns its
// length: 2, 6, or 12 for a pair of surrogates.
func escapeLen(b []byte, i int) (int, *Error) {
	if i+1 >= len(b) {
		return 0, &Error{Kind: Syntax, Offset: i, Detail: "a string without an end"}
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, nil
	case 'u':
	default:
		return 0, &Error{Kind: Syntax, Offset: i, Detail: "unknown escape"}
	}
	r, ok := hex4(b, i+2)
	if !ok {
		return 0, &Error{Kind: Syntax, Offset: i, Detail: `\u needs four hexadecimal digits`}
	}
	if r < 0xd800 || r > 0xdfff {
		return 6, nil
	}
	if r < 0xdc00 && i+7 < len(b) && b[i+6] == '\\' && b[i+7] == 'u' {
		if low, ok := hex4(b, i+8); ok && low >= 0xdc00 && low <= 0xdfff {
			return 12, nil
		}
	}
	return 0, &Error{Kind: LoneSurrogate, Offset: i}
}

func hex4(b []byte, i int) (rune, bool) {
	if i+4 > len(b) {
		return 0, false
	}
	var r rune
	for _, c := range b[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// number reads -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?; its size is nobody's business here.
func (s *scanner) number() *Error {
	if s.at('-') {
		s.i++
	}
	switch {
	case s.at('0'):
		s.i++
	case s.digits() == 0:
		return s.syntax("a digit is needed")
	}
	if s.at('.') {
		s.i++
		if s.digits() == 0 {
			return s.syntax("a digit is needed after the point")
		}
	}
	if s.at('e') || s.at('E') {
		s.i++
		if s.at('+') || s.at('-') {
			s.i++
		}
		if s.digits() == 0 {
			return s.syntax("a digit is needed in the exponent")
		}
	}
	return nil
}

func (s *scanner) digits() int {
	start := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i - start
}

func (s *scanner) literal(word string) *Error {
	if end := s.i + len(word); end <= len(s.b) && string(s.b[s.i:end]) == word {
		s.i = end
		return nil
	}
	return s.syntax("only true, false and null are words")
}

func (s *scanner) syntax(detail string) *Error {
	if s.i >= len(s.b) {
		detail += ", the text ends"
	}
	return &Error{Kind: Syntax, Offset: s.i, Detail: detail}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

func byteText(c byte) string { return strconv.QuoteRuneToASCII(rune(c)) }
