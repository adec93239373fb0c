package gateway

import (
	"time"

	"github.com/writ-dev/writ/gateway-svc/internal/conduct"
	"github.com/writ-dev/writ/internal/rawjson"
)

// Limits are the gateway's settings, by the names that Map gives them. 0 stands for the default.
type Limits struct {
	OpenCalls                int           // open_calls_max: calls without an outcome; 10000
	RunningPerPrincipal      int           // running_calls_max_per_principal: of them not waiting for a person; 256
	ArgumentsBytes           int           // arguments_max_bytes; 1 MiB
	ArgumentsDepth           int           // arguments_max_depth; 64
	ArgumentsNames           int           // arguments_max_names; 65536
	EventsPerCall            int           // call_events_max: events kept; 1000
	EventBytesPerCall        int64         // call_events_max_bytes; 4 MiB
	EventBytes               int64         // events_max_bytes: of all calls; 256 MiB
	EndedCalls               int           // ended_calls_max: ended calls kept in memory; 1000
	EndedBytes               int64         // ended_calls_max_bytes; 64 MiB
	EndedFor                 time.Duration // ended_calls_ms; 5 min
	Presentings              int           // presentings_max: times that one call is presented to an executor; 3
	PeerWait                 time.Duration // peer_wait_ms: for how long a call waits for a service that is away; 2 min
	ClockSkew                time.Duration // clock_skew_ms: how much later than its expiry an executor may still accept a writ; 5 s
	RetryMin                 time.Duration // retry_min_ms: the first pause between two tries; 25 ms
	RetryMax                 time.Duration // retry_max_ms: the longest; 2 s
	CardsPerTurnScan         int           // cards_scan_max: cards of a turn that are looked at to find one call's; 2000
	ApprovedCardsAtStart     int           // approved_cards_scan_max: approved cards that are looked at when the gateway starts; 100000
	listDefault, listLargest int
}

func (l Limits) withDefaults() Limits {
	count(&l.OpenCalls, 10_000)
	count(&l.RunningPerPrincipal, 256)
	count(&l.ArgumentsBytes, rawjson.DefaultMaxBytes)
	count(&l.ArgumentsDepth, rawjson.DefaultMaxDepth)
	count(&l.ArgumentsNames, rawjson.DefaultMaxNames)
	count(&l.EventsPerCall, 1000)
	count(&l.EventBytesPerCall, 4<<20)
	count(&l.EventBytes, 256<<20)
	count(&l.EndedCalls, 1000)
	count(&l.EndedBytes, 64<<20)
	count(&l.EndedFor, 5*time.Minute)
	count(&l.Presentings, 3)
	count(&l.PeerWait, 2*time.Minute)
	count(&l.ClockSkew, 5*time.Second)
	count(&l.RetryMin, 25*time.Millisecond)
	count(&l.RetryMax, 2*time.Second)
	count(&l.CardsPerTurnScan, 2000)
	count(&l.ApprovedCardsAtStart, 100_000)
	l.listDefault, l.listLargest = 50, 1000
	return l
}

func count[N int | int64 | time.Duration](value *N, standard N) {
	if *value <= 0 {
		*value = standard
	}
}

// Map is every limit by its name, as GetServerInfo and errors show it.
func (l Limits) Map() map[string]int64 {
	l = l.withDefaults()
	return map[string]int64{
		"open_calls_max":                  int64(l.OpenCalls),
		"running_calls_max_per_principal": int64(l.RunningPerPrincipal),
		"arguments_max_bytes":             int64(l.ArgumentsBytes),
		"arguments_max_depth":             int64(l.ArgumentsDepth),
		"arguments_max_names":             int64(l.ArgumentsNames),
		"call_events_max":                 int64(l.EventsPerCall),
		"call_events_max_bytes":           l.EventBytesPerCall,
		"events_max_bytes":                l.EventBytes,
		"ended_calls_max":                 int64(l.EndedCalls),
		"ended_calls_max_bytes":           l.EndedBytes,
		"ended_calls_ms":                  l.EndedFor.Milliseconds(),
		"presentings_max":                 int64(l.Presentings),
		"peer_wait_ms":                    l.PeerWait.Milliseconds(),
		"clock_skew_ms":                   l.ClockSkew.Milliseconds(),
		"retry_min_ms":                    l.RetryMin.Milliseconds(),
		"retry_max_ms":                    l.RetryMax.Milliseconds(),
		"cards_scan_max":                  int64(l.CardsPerTurnScan),
		"approved_cards_scan_max":         int64(l.ApprovedCardsAtStart),
	}
}

func (l Limits) conduct() conduct.Limits {
	return conduct.Limits{
		Open: l.OpenCalls, PerPrincipal: l.RunningPerPrincipal, Events: l.EventsPerCall, EventBytes: l.EventBytesPerCall,
		AllBytes: l.EventBytes, Ended: l.EndedCalls, EndedBytes: l.EndedBytes, EndedFor: l.EndedFor,
		Presentings: l.Presentings, PeerWait: l.PeerWait, Skew: l.ClockSkew, RetryMin: l.RetryMin, RetryMax: l.RetryMax,
	}
}
