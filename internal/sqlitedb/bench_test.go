package sqlitedb_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/writ-dev/writ/internal/sqlitedb"
)

// BenchmarkWrite is one durable insert, for one caller and for sixteen who share commits.
func BenchmarkWrite(b *testing.B) {
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			db, err := sqlitedb.Open(b.Context(), b.TempDir()+"/s.db", schema)
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			var n atomic.Int64
			b.SetParallelism(callers)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := insert(db, b.Context(), fmt.Sprint(n.Add(1))); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
