package evidence_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/writ-dev/writ/clients/go/writtoken"
	evidence "github.com/writ-dev/writ/evidence-svc"
	"github.com/writ-dev/writ/evidence-svc/evidencetest"
)

// BenchmarkClaimAndSeal is what evidence adds to a call: two commits for an effect, one for a read. What the same disk
// needs for one shows internal/sqlitedb's BenchmarkWrite.
func BenchmarkClaimAndSeal(b *testing.B) {
	for name, change := range map[string]func(*writtoken.Claims){"effect": nil, "read": read} {
		for _, callers := range []int{1, 16} {
			b.Run(fmt.Sprint(name, "/", callers), func(b *testing.B) {
				s := evidencetest.New(b, evidence.Config{Dir: b.TempDir()}, nil)
				calls := make([]call, b.N)
				for i := range calls {
					calls[i] = newCall(b, change)
				}
				var next atomic.Int64
				b.ResetTimer()
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						for i := next.Add(1) - 1; i < int64(len(calls)); i = next.Add(1) - 1 {
							run(b, s, calls[i])
						}
					})
				}
				wg.Wait()
			})
		}
	}
}
