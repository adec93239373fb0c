package store_test

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/writ-dev/writ/mcp-host-svc/internal/store"
)

// Every engine passes this suite.
func TestEngineKeepsWhatItWasTold(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "mcp-host.db")
	open := func() store.Store {
		s, err := store.OpenSQLite(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	long := store.Listing{Namespace: "a", Name: "fs", ProviderDigest: "d", ListTime: time.UnixMicro(1_800_000_000_123_456).UTC(), TTL: time.Second,
		Tools: []store.Tool{{Name: "z", Definition: []byte("{ \"name\":\"z\", \"n\":9007199254740993.0\xff}")}, {Name: "a", Definition: []byte("{}")}}}
	short := long
	short.Tools = long.Tools[:1]
	for _, err := range []error{
		s.PutServer(ctx, store.Server{Namespace: "a", Name: "fs", Spec: []byte("one")}),
		s.PutServer(ctx, store.Server{Namespace: "b", Name: "fs", Spec: []byte("other tenant")}),
		s.PutServer(ctx, store.Server{Namespace: "a", Name: "fs", Spec: []byte("two")}),
		s.PutListing(ctx, long), s.PutListing(ctx, short), s.PutListing(ctx, long),
		s.PutEra(ctx, "d", "legacy"), s.PutEra(ctx, "d", "modern"), s.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s = open()
	defer s.Close()
	servers, err := s.Servers(ctx)
	if err != nil || len(servers) != 2 || string(servers[0].Spec) != "two" {
		t.Fatalf("%v %+v", err, servers)
	}
	listings, err := s.Listings(ctx)
	if err != nil || !reflect.DeepEqual(listings, []store.Listing{long}) {
		t.Fatalf("%v %+v", err, listings)
	}
	if eras, err := s.Eras(ctx); err != nil || eras["d"] != "modern" {
		t.Fatalf("%v %v", err, eras)
	}
	if err := s.DeleteServer(ctx, "a", "fs"); err != nil {
		t.Fatal(err)
	}
	servers, _ = s.Servers(ctx)
	listings, _ = s.Listings(ctx)
	if len(servers) != 1 || len(listings) != 0 {
		t.Fatalf("%+v %+v", servers, listings)
	}
}
