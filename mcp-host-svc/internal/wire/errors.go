package wire

import "fmt"

// RPCError is a JSON-RPC error that the server answered with.
type RPCError struct {
	Code    int64
	Message string
	Data    []byte // raw JSON; nil when the server sent none
}

func (e *RPCError) Error() string {
	return fmt.Sprintf("the server answered with error %d: %s", e.Code, e.Message)
}

// TooLongError says that the answer was a line longer than the cap. Only the
// request that it belongs to fails.
type TooLongError struct {
	Limit int64 // bytes
	Got   int64 // bytes
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("the server's answer is a line of %d bytes; the limit max_line_bytes is %d", e.Got, e.Limit)
}

// ClosedError says that the connection ended before the answer came.
type ClosedError struct {
	// Sent says whether any byte of the request may have reached the server.
	Sent bool
}

func (e *ClosedError) Error() string {
	if e.Sent {
		return "the connection to the server ended after the request was sent and before it was answered"
	}
	return "the connection to the server ended before the request was sent"
}

// InterruptedError says that the caller's context ended before the answer came.
type InterruptedError struct {
	// Sent says whether any byte of the request may have reached the server.
	Sent  bool
	Cause error // what ended the context
}

func (e *InterruptedError) Error() string {
	if e.Sent {
		return fmt.Sprintf("given up after the request was sent: %v", e.Cause)
	}
	return fmt.Sprintf("given up before the request was sent: %v", e.Cause)
}

func (e *InterruptedError) Unwrap() error { return e.Cause }
