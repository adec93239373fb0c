package shell

import (
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// literal is the value of a word that holds nothing to expand, quotes and escapes removed as the shell does.
func literal(w *syntax.Word) (string, bool) {
	if w == nil {
		return "", false
	}
	var b strings.Builder
	for _, p := range w.Parts {
		if !part(&b, p) {
			return "", false
		}
	}
	return b.String(), true
}

func part(b *strings.Builder, p syntax.WordPart) bool {
	switch p := p.(type) {
	case *syntax.Lit:
		unescape(b, p.Value, false)
	case *syntax.SglQuoted:
		if !p.Dollar {
			b.WriteString(p.Value)
			return true
		}
		text, _, err := expand.Format(nil, p.Value, nil) // the escapes of $'…' are those of printf's format
		if err != nil || strings.ContainsRune(p.Value, '%') {
			return false
		}
		b.WriteString(text)
	case *syntax.DblQuoted:
		for _, inner := range p.Parts {
			lit, ok := inner.(*syntax.Lit)
			if !ok {
				return false
			}
			unescape(b, lit.Value, true)
		}
	default:
		return false
	}
	return true
}

// unescape removes backslashes; between double quotes only before the characters that are special there.
func unescape(b *strings.Builder, s string, quoted bool) {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		next := s[i+1]
		switch {
		case next == '\n':
			i++
		case quoted && !strings.ContainsRune("$`\"\\", rune(next)):
			b.WriteByte('\\')
		default:
			b.WriteByte(next)
			i++
		}
	}
}

// expands reports whether the shell would still make other words of this one: braces and file name patterns.
func expands(w *syntax.Word) bool {
	for _, p := range w.Parts {
		lit, ok := p.(*syntax.Lit)
		if !ok {
			continue
		}
		for i := 0; i < len(lit.Value); i++ {
			switch lit.Value[i] {
			case '\\':
				i++
			case '*', '?', '[', '{':
				if lit.Value != "[" && lit.Value != "{}" {
					return true
				}
			}
		}
	}
	return false
}
