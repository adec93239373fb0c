// Package ids makes the identifiers that Writ mints: turns, calls, receipts, cards.
//
// An id is a prefix that tells the kind, then 26 characters of Crockford's
// base32 in lower case: 48 bits of milliseconds since 1970 and 80 random bits,
// as a ULID has them. Ids of one kind therefore sort by age, need no
// coordination between replicas, and cannot be guessed from each other.
package ids

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// Length is the number of characters after the prefix.
const Length = 26

// New makes an id of the present time. The prefix ends with "_" by custom
// ("t_" turn, "c_" call, "r_" receipt, "k_" card). It panics when random
// gives no bytes, which crypto/rand.Reader never does: a predictable id would
// be worse than no process.
func New(prefix string, random io.Reader) string { return At(prefix, time.Now(), random) }

// At is New for a given time, for whoever carries a clock of their own.
func At(prefix string, now time.Time, random io.Reader) string {
	var b [16]byte
	ms := uint64(now.UnixMilli())
	binary.BigEndian.PutUint16(b[0:], uint16(ms>>32))
	binary.BigEndian.PutUint32(b[2:], uint32(ms))
	if _, err := io.ReadFull(random, b[6:]); err != nil {
		panic(fmt.Sprintf("ids: no random bytes: %v", err))
	}
	out := make([]byte, len(prefix)+Length)
	copy(out, prefix)
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	for i := len(out) - 1; i >= len(prefix); i-- {
		out[i] = alphabet[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(out)
}

// Valid reports whether id is the prefix followed by what New puts behind it.
func Valid(prefix, id string) bool {
	if len(id) != len(prefix)+Length || id[:len(prefix)] != prefix || id[len(prefix)] > '7' {
		return false
	}
	for _, c := range []byte(id[len(prefix):]) {
		letter := c >= 'a' && c <= 'z' && c != 'i' && c != 'l' && c != 'o' && c != 'u'
		if !letter && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
