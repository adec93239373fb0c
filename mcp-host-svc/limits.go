package mcphost

import (
	"cmp"
	"sync"
	"time"
)

// Limits of the service, by their names as settings.
type Limits struct {
	ArgumentsMaxBytes     int           // arguments_max_bytes, 1 MiB
	ResultsInlineMaxBytes int           // results_inline_max_bytes, 1 MiB; larger as a blob
	LineMaxBytes          int           // mcp_line_max_bytes, 16 MiB of one message of a server
	ServerRequestsMax     int           // mcp_server_requests_max, 64 open requests of one server
	ListMaxPages          int           // mcp_list_max_pages, 100
	ListMaxTools          int           // mcp_list_max_tools, 2000
	ListMaxBytes          int           // mcp_list_max_bytes, 8 MiB
	ListTimeout           time.Duration // mcp_list_timeout_ms, 30 s
	ListingMaxAge         time.Duration // mcp_listing_max_age_ms, 24 h, or less where the server says so
	DiscoverTimeout       time.Duration // mcp_discover_timeout_ms, 2 s, then the legacy handshake is tried too
	StartTimeout          time.Duration // start_timeout_ms, 120 s from the launch to the handshake
	CallTimeout           time.Duration // call_timeout_ms, 300 s from the first byte to the answer
	StopGrace             time.Duration // mcp_stop_grace_ms, 2 s to end by itself, then as long from TERM to KILL
	IdleTimeout           time.Duration // idle_timeout_ms, 300 s (R61)
	BackoffMax            time.Duration // mcp_restart_backoff_max_ms, 30 s between starts that fail
	LogBytes              int           // mcp_log_bytes, 64 KiB of a server's standard error
	CallsMax              int           // mcp_calls_max, 256 at a time, waiting ones included
	ProgressMax           int           // mcp_progress_max, 1000 progress events of one call
	KeptMax               int           // mcp_kept_max, 256 ended calls that can be attached
	KeptFor               time.Duration // mcp_kept_for_ms, 10 min
	SealPatience          time.Duration // mcp_seal_patience_ms, 30 s of trying to seal
}

func (l Limits) withDefaults() Limits {
	return Limits{
		ArgumentsMaxBytes:     cmp.Or(l.ArgumentsMaxBytes, 1<<20),
		ResultsInlineMaxBytes: cmp.Or(l.ResultsInlineMaxBytes, 1<<20),
		LineMaxBytes:          cmp.Or(l.LineMaxBytes, 16<<20),
		ServerRequestsMax:     cmp.Or(l.ServerRequestsMax, 64),
		ListMaxPages:          cmp.Or(l.ListMaxPages, 100),
		ListMaxTools:          cmp.Or(l.ListMaxTools, 2000),
		ListMaxBytes:          cmp.Or(l.ListMaxBytes, 8<<20),
		ListTimeout:           cmp.Or(l.ListTimeout, 30*time.Second),
		ListingMaxAge:         cmp.Or(l.ListingMaxAge, 24*time.Hour),
		DiscoverTimeout:       cmp.Or(l.DiscoverTimeout, 2*time.Second),
		StartTimeout:          cmp.Or(l.StartTimeout, 120*time.Second),
		CallTimeout:           cmp.Or(l.CallTimeout, 300*time.Second),
		StopGrace:             cmp.Or(l.StopGrace, 2*time.Second),
		IdleTimeout:           cmp.Or(l.IdleTimeout, 300*time.Second),
		BackoffMax:            cmp.Or(l.BackoffMax, 30*time.Second),
		LogBytes:              cmp.Or(l.LogBytes, 64<<10),
		CallsMax:              cmp.Or(l.CallsMax, 256),
		ProgressMax:           cmp.Or(l.ProgressMax, 1000),
		KeptMax:               cmp.Or(l.KeptMax, 256),
		KeptFor:               cmp.Or(l.KeptFor, 10*time.Minute),
		SealPatience:          cmp.Or(l.SealPatience, 30*time.Second),
	}
}

// LimitValues are the limits in force by their names in docs/limits.md: bytes,
// counts and milliseconds, as the name says.
func (s *Server) LimitValues() map[string]int64 {
	l := s.limits
	return map[string]int64{
		"arguments_max_bytes": int64(l.ArgumentsMaxBytes), "results_inline_max_bytes": int64(l.ResultsInlineMaxBytes),
		"mcp_line_max_bytes": int64(l.LineMaxBytes), "mcp_server_requests_max": int64(l.ServerRequestsMax),
		"mcp_list_max_pages": int64(l.ListMaxPages), "mcp_list_max_tools": int64(l.ListMaxTools), "mcp_list_max_bytes": int64(l.ListMaxBytes),
		"mcp_list_timeout_ms": l.ListTimeout.Milliseconds(), "mcp_listing_max_age_ms": l.ListingMaxAge.Milliseconds(),
		"mcp_discover_timeout_ms": l.DiscoverTimeout.Milliseconds(), "start_timeout_ms": l.StartTimeout.Milliseconds(),
		"call_timeout_ms": l.CallTimeout.Milliseconds(), "mcp_stop_grace_ms": l.StopGrace.Milliseconds(),
		"idle_timeout_ms": l.IdleTimeout.Milliseconds(), "mcp_restart_backoff_max_ms": l.BackoffMax.Milliseconds(),
		"mcp_log_bytes": int64(l.LogBytes), "mcp_calls_max": int64(l.CallsMax), "mcp_progress_max": int64(l.ProgressMax),
		"mcp_kept_max": int64(l.KeptMax), "mcp_kept_for_ms": l.KeptFor.Milliseconds(), "mcp_seal_patience_ms": l.SealPatience.Milliseconds(),
	}
}

// usedWrits remembers the ids of writs until they expire, so that one that is
// presented twice runs once even where evidence holds the claim only in memory.
type usedWrits struct {
	mu  sync.Mutex
	ids map[string]time.Time
}

// use is false when the writ was used before.
func (u *usedWrits) use(id string, expiry, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids == nil {
		u.ids = map[string]time.Time{}
	}
	if _, used := u.ids[id]; used {
		return false
	}
	if len(u.ids)%256 == 255 {
		for k, until := range u.ids {
			if now.After(until) {
				delete(u.ids, k)
			}
		}
	}
	u.ids[id] = expiry.Add(time.Minute)
	return true
}

// forget takes use back.
func (u *usedWrits) forget(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.ids, id)
}
