package run

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/writ-dev/writ/clients/go/rawjson"
	"github.com/writ-dev/writ/internal/sandbox"
)

// MaxResult is the largest result, results_inline_max_bytes of the contract.
const MaxResult = 1 << 20

// Result is the JSON result of run_command:
//
//	{"exit_code":0,"stdout":"…","stderr":"…","truncated":false}
//
// with "signal":"SIGKILL" and exit_code -1 where a signal ended the command.
// Bytes that are not UTF-8 become U+FFFD; the output events have them as they
// were. Output that would make the result larger than MaxResult is cut.
func Result(exit sandbox.Exit, o *Output) []byte {
	stdout, lost1 := o.Kept(Stdout)
	stderr, lost2 := o.Kept(Stderr)
	truncated := lost1+lost2 > 0
	for {
		b := resultJSON(exit, stdout, stderr, truncated)
		if len(b) <= MaxResult {
			return b
		}
		// Escapes made it larger than the bytes kept: cut the longer stream.
		truncated = true
		if len(stdout) >= len(stderr) {
			stdout = stdout[:len(stdout)/2]
		} else {
			stderr = stderr[:len(stderr)/2]
		}
	}
}

func resultJSON(exit sandbox.Exit, stdout, stderr []byte, truncated bool) []byte {
	b := make([]byte, 0, len(stdout)+len(stderr)+128)
	b = append(b, `{"exit_code":`...)
	b = strconv.AppendInt(b, int64(exit.Code), 10)
	if exit.Signal != 0 {
		b = append(b, `,"signal":`...)
		b = rawjson.AppendString(b, unix.SignalName(exit.Signal))
	}
	b = append(b, `,"stdout":`...)
	b = rawjson.AppendString(b, valid(stdout))
	b = append(b, `,"stderr":`...)
	b = rawjson.AppendString(b, valid(stderr))
	b = append(b, `,"truncated":`...)
	b = strconv.AppendBool(b, truncated)
	return append(b, '}')
}
