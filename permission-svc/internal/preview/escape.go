// Package preview builds what a person sees before an answer counts. Foreign text in it can't pretend to be something
// else: what has no shape of its own, or another shape than it seems to have, is written as its number.
package preview

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Warnings about foreign text.
const (
	WarnControl  = "contains control characters"
	WarnBidi     = "contains bidirectional control characters"
	WarnHidden   = "contains invisible characters"
	WarnTag      = "contains Unicode tag characters, which can hide text"
	WarnMixed    = "mixes letters of scripts that look alike"
	WarnEncoding = "is not valid UTF-8"
)

// Escape makes every character of foreign text visible and reports what it found. With lines, new lines and tabs stay:
// they are part of how a command or a text is read.
func Escape(s string, lines bool) (string, []string) {
	var b strings.Builder
	var found warnings
	for len(s) > 0 {
		word, rest := cutWord(s)
		mixed := mixesScripts(word)
		if mixed {
			found.add(WarnMixed)
		}
		for i := 0; i < len(word); {
			r, n := utf8.DecodeRuneInString(word[i:])
			switch why := hidden(r, n, lines); {
			case r == utf8.RuneError && n == 1:
				fmt.Fprintf(&b, "⟨0x%02X⟩", word[i])
				found.add(why)
			case why != "":
				fmt.Fprintf(&b, "⟨U+%04X⟩", r)
				found.add(why)
			case mixed && r > unicode.MaxASCII && unicode.IsLetter(r) && !unicode.Is(unicode.Latin, r):
				fmt.Fprintf(&b, "⟨U+%04X⟩", r)
			default:
				b.WriteString(word[i : i+n])
			}
			i += n
		}
		s = rest
	}
	return b.String(), found
}

// hidden says in what way a character is not what it looks like, "" if it is.
func hidden(r rune, size int, lines bool) string {
	switch {
	case r == utf8.RuneError && size == 1:
		return WarnEncoding
	case lines && (r == '\n' || r == '\t'):
		return ""
	case unicode.IsControl(r) || r == 0x2028 || r == 0x2029:
		return WarnControl
	case r == 0x061c || r >= 0x200e && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x206f:
		return WarnBidi
	case r >= 0xe0000 && r <= 0xe0fff:
		return WarnTag
	case unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs, unicode.Variation_Selector, unicode.Noncharacter_Code_Point):
		return WarnHidden
	case r != ' ' && unicode.Is(unicode.Zs, r), r == 0x034f, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x2800, r == 0x3164, r == 0xffa0, r == 0xfffc:
		return WarnHidden
	case r >= 0xff01 && r <= 0xff5e, r >= 0x1d400 && r <= 0x1d7ff:
		return WarnMixed // letters that differ from ASCII by their width or style only
	case r > unicode.MaxASCII && !unicode.IsGraphic(r):
		return WarnHidden
	}
	return ""
}

// cutWord cuts the run of letters, marks and digits at the start, or one other character.
func cutWord(s string) (word, rest string) {
	for i, r := range s {
		if !unicode.In(r, unicode.L, unicode.M, unicode.Nd) {
			if i == 0 {
				_, n := utf8.DecodeRuneInString(s)
				return s[:n], s[n:]
			}
			return s[:i], s[i:]
		}
	}
	return s, ""
}

// mixesScripts finds a word with Latin letters beside those of a script that has the same shapes.
func mixesScripts(word string) bool {
	var latin, other bool
	for _, r := range word {
		latin = latin || unicode.Is(unicode.Latin, r)
		other = other || unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee, unicode.Coptic, unicode.Lisu, unicode.Georgian)
	}
	return latin && other
}

// warnings is a short list without repetitions.
type warnings []string

func (w *warnings) add(texts ...string) {
	for _, t := range texts {
		known := false
		for _, have := range *w {
			known = known || have == t
		}
		if !known {
			*w = append(*w, t)
		}
	}
}
