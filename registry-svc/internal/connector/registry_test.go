package connector_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/writ-dev/writ/registry-svc/internal/connector"
	"github.com/writ-dev/writ/registry-svc/internal/fault"
	"github.com/writ-dev/writ/registry-svc/internal/store"
)

// host is an mcp-host that fails now and then.
type host struct {
	mu      sync.Mutex
	servers map[connector.Key]string // "command enabled", as last told
	flaky   func() bool
}

func (h *host) say(key connector.Key, what string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.flaky != nil && h.flaky() {
		return &connector.HostError{Text: "the host is down"}
	}
	if what == "" {
		delete(h.servers, key)
	} else {
		h.servers[key] = what
	}
	return nil
}

func (h *host) knows(key connector.Key) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.servers[key]
}

func state(s connector.Spec, enabled bool) string { return fmt.Sprint(s.Command, " ", enabled) }

func (h *host) Apply(_ context.Context, key connector.Key, s connector.Spec, enabled bool) (string, string, error) {
	return "digest of " + s.Command, "", h.say(key, state(s, enabled))
}

func (h *host) Remove(_ context.Context, key connector.Key) error { return h.say(key, "") }

func (h *host) Discover(context.Context, connector.Key, bool, string) (connector.Listing, error) {
	return connector.Listing{Digest: "d", Tools: []connector.Listed{{Name: "t", Definition: []byte("{}")}}}, nil
}

func (h *host) Open(context.Context) (map[connector.Key]bool, error) { return nil, nil }

func (h *host) Logs(context.Context, connector.Key, int32) ([]string, int64, error) {
	return nil, 0, nil
}

func registry(t *testing.T, s store.Store, h connector.Host) *connector.Registry {
	t.Helper()
	r, err := connector.New(t.Context(), connector.Options{Host: h, Store: s, Log: slog.New(slog.DiscardHandler), Now: time.Now, Max: 100}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func open(t *testing.T) store.Store {
	t.Helper()
	s, err := store.OpenSQLite(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Whatever operators do at once, and however often the host fails meanwhile: in the end the host, the registry and the
// store say the same (R57), and a restart does not change that.
func TestHostAndRegistryAgreeInTheEnd(t *testing.T) {
	s, h := open(t), &host{servers: map[connector.Key]string{}}
	r := registry(t, s, h)
	keys := []connector.Key{{Namespace: "default", Name: "a"}, {Namespace: "default", Name: "b"}, {Namespace: "other", Name: "a"}}
	h.flaky = func() bool { return rand.IntN(3) == 0 }
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 40 {
				key := keys[rand.IntN(len(keys))]
				var err error
				switch rand.IntN(4) {
				case 0:
					_, err = r.Create(t.Context(), connector.Connector{Key: key, Enabled: true, Spec: connector.Spec{
						Transport: connector.Stdio, Command: fmt.Sprintf("/bin/p%d-%d", worker, i)}})
				case 1:
					err = r.Delete(t.Context(), key)
				case 2:
					_, err = r.SetEnabled(t.Context(), key, rand.IntN(2) == 0)
				case 3:
					_, _, err = r.Current(t.Context(), key)
				}
				if h := (*connector.HostError)(nil); err != nil && !fault.Is(err, fault.ConnectorExists) && !fault.Is(err, fault.ConnectorNotFound) &&
					!fault.Is(err, fault.PeerUnavailable) && !asHost(err, &h) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	h.mu.Lock()
	h.flaky = nil
	h.mu.Unlock()
	for _, again := range []bool{false, true} {
		if again {
			r = registry(t, s, h)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(ctx)
		}()
		agree := func() bool {
			stored, err := s.Connectors(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want := map[connector.Key]string{}
			for _, c := range stored {
				want[c.Key] = state(c.Spec, c.Enabled)
			}
			for _, key := range keys {
				v, err := r.Get(t.Context(), key)
				if got := h.knows(key); got != want[key] || (err == nil) != (want[key] != "") || err == nil && state(v.Spec, v.Enabled) != want[key] {
					return false
				}
			}
			return true
		}
		for deadline := time.Now().Add(10 * time.Second); !agree(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("they don't agree: host %v", h.servers)
			}
		}
		stop()
		<-done
	}
}

func asHost(err error, target **connector.HostError) bool {
	h, ok := err.(*connector.HostError)
	*target = h
	return ok
}

// Rule 5: expansion puts in what is bound, once; with everything bound nothing of the reference is left, and without
// references nothing changes.
func TestExpandPutsInWhatIsBound(t *testing.T) {
	plain := rapid.StringMatching(`[a-z0-9 /.$}-]{0,8}`)
	rapid.Check(t, func(t *rapid.T) {
		bound, want, text := map[string]string{}, "/", "/"
		for i := range rapid.IntRange(0, 4).Draw(t, "parts") {
			p := plain.Draw(t, "plain")
			text, want = text+p, want+p
			name, value := fmt.Sprintf("V%d", i), rapid.SampledFrom([]string{"", "x", "${V0}", "}"}).Draw(t, "value")
			bound[name] = value
			fallback := rapid.SampledFrom([]string{"", ":-", ":-d"}).Draw(t, "fallback")
			text += "${" + name + fallback + "}"
			if value == "" && fallback == ":-d" {
				value = "d"
			}
			want += value
		}
		in := connector.Spec{Transport: connector.Stdio, Command: "/x", Args: []string{text}}
		out, issues := connector.Expand(in, bound)
		if len(issues) != 0 || out.Args[0] != want || in.Args[0] != text {
			t.Fatalf("%q became %q, want %q; %v", text, out.Args[0], want, issues)
		}
		if len(bound) > 0 {
			if _, issues := connector.Expand(in, nil); len(issues) != len(bound) {
				t.Fatalf("%d of %d are told", len(issues), len(bound))
			}
		}
	})
}
