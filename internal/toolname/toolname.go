// Package toolname builds and takes apart the names of tools, providers and
// calls. A name that a model sees (an alias) is a pure function of server and
// tool, so that it stays the same over turns, restarts and machines.
package toolname

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// mcpPrefix begins the canonical name of every tool of an MCP server.
const mcpPrefix = "mcp."

// RunCommand is the canonical name of the builtin shell command tool.
const RunCommand = "run_command"

// MCP is the canonical name of a server's tool. A server's name holds no dot
// (ValidServer), so that the name can be split again whatever the tool is called.
func MCP(server, tool string) string { return mcpPrefix + server + "." + tool }

// Provider is the canonical name of an MCP server as a provider of tools.
func Provider(server string) string { return mcpPrefix + server }

// Split takes the canonical name of an MCP tool apart. It reports false for
// anything else, builtins among them.
func Split(canonical string) (server, tool string, ok bool) {
	rest, ok := strings.CutPrefix(canonical, mcpPrefix)
	if !ok {
		return "", "", false
	}
	server, tool, ok = strings.Cut(rest, ".")
	if !ok || tool == "" || !ValidServer(server) {
		return "", "", false
	}
	return server, tool, true
}

// ServerOf takes the canonical name of an MCP provider apart.
func ServerOf(provider string) (server string, ok bool) {
	server, ok = strings.CutPrefix(provider, mcpPrefix)
	return server, ok && ValidServer(server)
}

// ValidServer reports whether a connector may have this name:
// 1 to 64 of A-Z a-z 0-9 _ -, beginning with a letter or a digit.
func ValidServer(name string) bool {
	return len(name) >= 1 && len(name) <= 64 && name[0] != '-' && name[0] != '_' && plain(name)
}

// MaxAlias is the length that every model provider accepts for a tool's name.
const MaxAlias = 64

// hashChars is the length of the hash in an alias: 40 bits, in hexadecimal, since
// hardly any word is made of the letters a to f.
const hashChars = 10

// Alias is the model-facing name of a server's tool: ^[a-zA-Z0-9_-]{1,64}$.
// Where both names are plain and short it is "<server>__<tool>". Where a
// character had to be changed, the name had to be cut, or the plain form could
// also come from another pair, a hash of the exact pair is appended.
// An empty server stands for a builtin.
func Alias(server, tool string) string {
	prefix := ""
	if server != "" {
		prefix = server + "__"
	}
	full := prefix + tool
	if plain(full) && tool != "" && len(full) <= MaxAlias && !ambiguous(server, tool) {
		return full
	}
	sum := sha256.Sum256(append(append([]byte(server), 0), tool...))
	tail := "_" + hex.EncodeToString(sum[:hashChars/2])
	readable := replaceOthers(full)
	if room := MaxAlias - len(tail); len(readable) > room {
		readable = readable[:room]
	}
	return readable + tail
}

// ambiguous finds pairs whose plain form another pair could have too:
// ("a__b","c") and ("a","b__c"); ("a_","b") and ("a","_b"); a builtin "a__b";
// and forms that end like a hashed one.
func ambiguous(server, tool string) bool {
	if strings.Contains(tool, "__") || strings.HasPrefix(tool, "_") {
		return true
	}
	if strings.Contains(server, "__") || strings.HasSuffix(server, "_") {
		return true
	}
	full := server + "__" + tool
	if server == "" {
		full = tool
	}
	return looksHashed(full)
}

// looksHashed reports whether a name ends as a hashed alias does.
func looksHashed(name string) bool {
	at := len(name) - hashChars - 1
	if at < 0 || name[at] != '_' {
		return false
	}
	for _, c := range []byte(name[at+1:]) {
		if (c < 'a' || c > 'f') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// Call is the resource name of a call.
func Call(turn, call string) string { return "turns/" + turn + "/calls/" + call }

// ParseCall takes the resource name of a call apart.
func ParseCall(name string) (turn, call string, ok bool) {
	rest, ok := strings.CutPrefix(name, "turns/")
	if !ok {
		return "", "", false
	}
	turn, call, ok = strings.Cut(rest, "/calls/")
	if !ok || !ValidCallID(turn) || !ValidCallID(call) {
		return "", "", false
	}
	return turn, call, true
}

// Turn is the resource name of a turn.
func Turn(turn string) string { return "turns/" + turn }

// ParseTurn takes the resource name of a turn apart.
func ParseTurn(name string) (turn string, ok bool) {
	turn, ok = strings.CutPrefix(name, "turns/")
	return turn, ok && ValidCallID(turn)
}

// ValidCallID reports whether a caller may use this id: 1 to 128 of A-Z a-z 0-9 . _ -
func ValidCallID(id string) bool {
	if len(id) < 1 || len(id) > 128 {
		return false
	}
	for _, c := range []byte(id) {
		if !plainByte(c) && c != '.' {
			return false
		}
	}
	return true
}

func plain(s string) bool {
	for i := range len(s) {
		if !plainByte(s[i]) {
			return false
		}
	}
	return true
}

func plainByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// replaceOthers puts "_" for every character that an alias can't hold.
func replaceOthers(s string) string {
	out := make([]byte, 0, len(s))
	for _, r := range s {
		if r < 0x80 && plainByte(byte(r)) {
			out = append(out, byte(r))
		} else {
			out = append(out, '_')
		}
	}
	return string(out)
}
