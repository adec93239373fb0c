// Package rawjson is clients/go/rawjson under the name by which the services
// import the kit. There is one implementation; see its documentation.
package rawjson

import (
	"iter"

	"github.com/writ-dev/writ/clients/go/rawjson"
)

// The types are those of clients/go/rawjson.
type (
	Limits = rawjson.Limits
	Error  = rawjson.Error
	Kind   = rawjson.Kind
	Type   = rawjson.Type
	Member = rawjson.Member
)

// Defaults that a zero Limits stands for.
const (
	DefaultMaxBytes = rawjson.DefaultMaxBytes
	DefaultMaxDepth = rawjson.DefaultMaxDepth
	DefaultMaxNames = rawjson.DefaultMaxNames
)

// The kinds of refusal.
const (
	Syntax        = rawjson.Syntax
	Empty         = rawjson.Empty
	TrailingBytes = rawjson.TrailingBytes
	DuplicateName = rawjson.DuplicateName
	InvalidUTF8   = rawjson.InvalidUTF8
	LoneSurrogate = rawjson.LoneSurrogate
	TooDeep       = rawjson.TooDeep
	TooLarge      = rawjson.TooLarge
	TooManyNames  = rawjson.TooManyNames
	NotObject     = rawjson.NotObject
	WrongType     = rawjson.WrongType
	NotFound      = rawjson.NotFound
	OutOfRange    = rawjson.OutOfRange
)

// The types of a JSON value.
const (
	Invalid = rawjson.Invalid
	Null    = rawjson.Null
	Bool    = rawjson.Bool
	Number  = rawjson.Number
	Str     = rawjson.Str
	Array   = rawjson.Array
	Object  = rawjson.Object
)

// Check reports whether b is exactly one JSON value within the limits.
func Check(b []byte, l Limits) error { return rawjson.Check(b, l) }

// CheckObject is Check for a text whose root must be an object.
func CheckObject(b []byte, l Limits) error { return rawjson.CheckObject(b, l) }

// TypeOf tells the type of a value from its first byte.
func TypeOf(raw []byte) Type { return rawjson.TypeOf(raw) }

// Get returns the value of a name in an object, a sub-slice of b.
func Get(b []byte, key string) (raw []byte, ok bool, err error) { return rawjson.Get(b, key) }

// Members iterates over the members of an object in their order.
func Members(b []byte) iter.Seq2[Member, error] { return rawjson.Members(b) }

// Elements iterates over the values of an array.
func Elements(b []byte) iter.Seq2[[]byte, error] { return rawjson.Elements(b) }

// Locate returns where the value that a JSON Pointer names stands.
func Locate(b []byte, pointer string) (start, end int, err error) { return rawjson.Locate(b, pointer) }

// Splice returns a copy of b with one value replaced and every other byte as it was.
func Splice(b []byte, pointer string, replacement []byte) ([]byte, error) {
	return rawjson.Splice(b, pointer, replacement)
}

// String decodes a JSON string.
func String(raw []byte) (string, error) { return rawjson.String(raw) }

// Int64 decodes a JSON number that is written as a whole number.
func Int64(raw []byte) (int64, error) { return rawjson.Int64(raw) }

// Boolean decodes true or false.
func Boolean(raw []byte) (bool, error) { return rawjson.Boolean(raw) }

// AppendString appends s as a JSON string.
func AppendString(dst []byte, s string) []byte { return rawjson.AppendString(dst, s) }
