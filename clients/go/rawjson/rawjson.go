// Package rawjson checks and reads JSON text without ever re-writing it.
//
// Writ keeps definitions, arguments and results as the bytes that arrived: a
// parse followed by a marshal changes 9007199254740993 into 9007199254740992,
// reorders names and drops what a struct does not know. So every component
// looks at foreign JSON through this package, which hands out sub-slices of
// the text that it was given, and there is exactly one opinion about what the
// text says: names are case-sensitive, a name stands once in an object, and
// nothing follows the value.
//
// Check is strict RFC 8259 plus what makes two parsers agree: duplicate names
// (compared after unescaping), invalid UTF-8 and lone surrogates are refused.
// The readers (Get, Members, Elements, Locate) check syntax too, but only
// Check looks for duplicates in the whole text: call it once at the door.
package rawjson

import "strconv"

// Defaults that a zero Limits stands for.
const (
	DefaultMaxBytes = 1 << 20 // one MiB, the limit of a call's arguments
	DefaultMaxDepth = 64      // nested arrays and objects
	DefaultMaxNames = 1 << 16 // object names in the whole text
)

// maxReadDepth bounds the recursion of the readers, which take no Limits.
const maxReadDepth = 1024

// Limits bounds what Check accepts. A field that is zero or negative stands for its default.
type Limits struct {
	MaxBytes int // length of the text in bytes
	MaxDepth int // nested arrays and objects; a scalar has depth 0
	MaxNames int // object names, counted over the whole text
}

func (l Limits) withDefaults() Limits {
	if l.MaxBytes <= 0 {
		l.MaxBytes = DefaultMaxBytes
	}
	if l.MaxDepth <= 0 {
		l.MaxDepth = DefaultMaxDepth
	}
	if l.MaxNames <= 0 {
		l.MaxNames = DefaultMaxNames
	}
	return l
}

// Check reports whether b is exactly one JSON value within the limits, with
// white space around it and nothing else. The error is an *Error.
func Check(b []byte, l Limits) error {
	l = l.withDefaults()
	if len(b) > l.MaxBytes {
		return &Error{Kind: TooLarge, Limit: l.MaxBytes, Got: len(b)}
	}
	var s scanner
	s.init(b, l.MaxDepth, l.MaxNames)
	return s.document()
}

// CheckObject is Check for a text whose root must be an object, as the
// arguments of a call must.
func CheckObject(b []byte, l Limits) error {
	if err := Check(b, l); err != nil {
		return err
	}
	if i := skipSpace(b, 0); b[i] != '{' {
		return &Error{Kind: NotObject, Offset: i, Detail: "the root is " + TypeOf(b).String()}
	}
	return nil
}

// Type is the JSON type of a value.
type Type uint8

// The types of RFC 8259; Invalid stands for a text that begins no value.
const (
	Invalid Type = iota
	Null
	Bool
	Number
	Str
	Array
	Object
)

// String names the type with its article, for use in a sentence.
func (t Type) String() string {
	switch t {
	case Null:
		return "null"
	case Bool:
		return "a boolean"
	case Number:
		return "a number"
	case Str:
		return "a string"
	case Array:
		return "an array"
	case Object:
		return "an object"
	}
	return "not a JSON value"
}

// TypeOf tells the type of a value from its first byte; it does not check the rest.
func TypeOf(raw []byte) Type {
	i := skipSpace(raw, 0)
	if i == len(raw) {
		return Invalid
	}
	switch c := raw[i]; {
	case c == '{':
		return Object
	case c == '[':
		return Array
	case c == '"':
		return Str
	case c == 't', c == 'f':
		return Bool
	case c == 'n':
		return Null
	case c == '-', c >= '0' && c <= '9':
		return Number
	}
	return Invalid
}

// Kind says in what way a text is refused.
type Kind uint8

// The kinds of refusal.
const (
	Syntax        Kind = iota + 1 // not RFC 8259
	Empty                         // no value at all
	TrailingBytes                 // something after the value
	DuplicateName                 // a name stands twice in one object, after unescaping
	InvalidUTF8                   // bytes that are no UTF-8
	LoneSurrogate                 // \ud800–\udfff without its partner
	TooDeep                       // more nesting than Limits.MaxDepth
	TooLarge                      // more bytes than Limits.MaxBytes
	TooManyNames                  // more names than Limits.MaxNames
	NotObject                     // the root had to be an object
	WrongType                     // a value of another type than asked for
	NotFound                      // a pointer that leads to no value
	OutOfRange                    // an integer that does not fit
)

// kindText holds for each kind a stable word for machines and a phrase for people.
var kindText = [...]struct{ word, phrase string }{
	Syntax:        {"syntax", "not valid JSON"},
	Empty:         {"empty", "empty: a JSON value is needed"},
	TrailingBytes: {"trailing_bytes", "more text after the JSON value"},
	DuplicateName: {"duplicate_name", "duplicate name"},
	InvalidUTF8:   {"invalid_utf8", "invalid UTF-8"},
	LoneSurrogate: {"lone_surrogate", "lone surrogate"},
	TooDeep:       {"too_deep", "nested too deep"},
	TooLarge:      {"too_large", "too large"},
	TooManyNames:  {"too_many_names", "too many names"},
	NotObject:     {"not_object", "a JSON object is needed"},
	WrongType:     {"wrong_type", "value of the wrong type"},
	NotFound:      {"not_found", "no such value"},
	OutOfRange:    {"out_of_range", "number out of range"},
}

// String is a short description of the kind, for people.
func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindText) {
		return "kind " + strconv.Itoa(int(k))
	}
	return kindText[k].phrase
}

// Word is the kind as a stable word, "duplicate_name" for example; it is what
// the metadata key `kind` of a JSON_INVALID error holds.
func (k Kind) Word() string {
	if k == 0 || int(k) >= len(kindText) {
		return "unknown"
	}
	return kindText[k].word
}

// LimitName is the field of Limits that was hit, or "" if none was.
func (k Kind) LimitName() string {
	switch k {
	case TooLarge:
		return "max_bytes"
	case TooDeep:
		return "max_depth"
	case TooManyNames:
		return "max_names"
	}
	return ""
}

// Error says what is wrong with a text and where.
type Error struct {
	Kind   Kind
	Offset int    // in bytes from the start of the text
	Path   string // JSON Pointer of the value, or of the name, that is refused; cut at 256 bytes
	Limit  int    // the limit that was hit, or 0
	Got    int    // what was found where a limit was hit
	Detail string // more, for a person
}

// Error names the problem, the place and the limit.
func (e *Error) Error() string {
	out := make([]byte, 0, 96)
	out = append(out, e.Kind.String()...)
	if e.Limit > 0 {
		out = append(out, ": "...)
		out = strconv.AppendInt(out, int64(e.Got), 10)
		out = append(out, ", the limit ("...)
		out = append(out, e.Kind.LimitName()...)
		out = append(out, ") is "...)
		out = strconv.AppendInt(out, int64(e.Limit), 10)
	}
	if e.Detail != "" {
		out = append(append(out, ": "...), e.Detail...)
	}
	if e.Kind != TooLarge && e.Kind != Empty {
		out = append(out, " at byte "...)
		out = strconv.AppendInt(out, int64(e.Offset), 10)
	}
	if e.Path != "" {
		out = append(append(out, " in "...), strconv.QuoteToASCII(e.Path)...)
	}
	return string(out)
}

const maxErrorPath = 256

// within puts one more step in front of the error's path, on the way out of the recursion.
func (e *Error) within(step string) *Error {
	step = escapePointer(step)
	if len(step)+1+len(e.Path) > maxErrorPath {
		if len(e.Path) < 3 || e.Path[:3] != "/.." {
			e.Path = "/..." + e.Path
		}
		return e
	}
	e.Path = "/" + step + e.Path
	return e
}
