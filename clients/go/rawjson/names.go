package rawjson

import (
	"bytes"
	"hash/maphash"
)

// nameSet finds duplicates among the names of one object: scanner.names[base:].
type nameSet struct {
	base  int
	table []int32 // open addressing: index into scanner.names plus one, 0 for free; nil while the object is small
}

// remember adds a name to the object's set, or refuses it as a duplicate.
func (s *scanner) remember(n name, set *nameSet) *Error {
	if s.count++; s.count > s.maxNames {
		return &Error{Kind: TooManyNames, Offset: n.start - 1, Limit: s.maxNames, Got: s.count}
	}
	if s.known(n, set) {
		e := &Error{Kind: DuplicateName, Offset: n.start - 1}
		return e.within(n.text(s.b))
	}
	s.names = append(s.names, n)
	if own := len(s.names) - set.base; own > linearNames {
		s.tabulate(set, own)
	}
	return nil
}

func (s *scanner) hash(n name) uint64 {
	if !n.escaped {
		return maphash.Bytes(s.seed, s.b[n.start:n.end])
	}
	var room [64]byte
	return maphash.Bytes(s.seed, unescape(room[:0], s.b[n.start:n.end]))
}

func (s *scanner) known(n name, set *nameSet) bool {
	if set.table == nil {
		for _, o := range s.names[set.base:] {
			if sameName(s.b, o, n) {
				return true
			}
		}
		return false
	}
	mask := uint64(len(set.table) - 1)
	for at := s.hash(n) & mask; set.table[at] != 0; at = (at + 1) & mask {
		if sameName(s.b, s.names[set.table[at]-1], n) {
			return true
		}
	}
	return false
}

// tabulate puts the newest of the object's own names into the table, which it
// builds, or enlarges, when more than half of it would be in use.
func (s *scanner) tabulate(set *nameSet, own int) {
	if 2*own <= len(set.table) {
		s.put(set, len(s.names)-1)
		return
	}
	if s.seed == (maphash.Seed{}) {
		s.seed = maphash.MakeSeed()
	}
	size := 4 * linearNames
	for size < 4*own {
		size *= 2
	}
	set.table = make([]int32, size)
	for i := set.base; i < len(s.names); i++ {
		s.put(set, i)
	}
}

func (s *scanner) put(set *nameSet, i int) {
	mask := uint64(len(set.table) - 1)
	at := s.hash(s.names[i]) & mask
	for set.table[at] != 0 {
		at = (at + 1) & mask
	}
	set.table[at] = int32(i + 1)
}

// sameName compares after unescaping: "a" and "\u0061" are one name.
func sameName(b []byte, x, y name) bool {
	if !x.escaped && !y.escaped {
		return bytes.Equal(b[x.start:x.end], b[y.start:y.end])
	}
	return x.text(b) == y.text(b)
}

// text is the name unescaped.
func (n name) text(b []byte) string {
	if !n.escaped {
		return string(b[n.start:n.end])
	}
	return string(unescape(nil, b[n.start:n.end]))
}
