package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/writ-dev/writ/internal/sqlitedb"
)

// Plans returns the query plans of the questions that are asked often and read a whole table or sort it.
func Plans(ctx context.Context, s Store) (bad []string) {
	queries := map[string]int{
		"SELECT body FROM cards WHERE namespace = ? AND state = ? AND seq < ? ORDER BY seq DESC LIMIT ?":                                                               4,
		"SELECT body FROM cards WHERE namespace = ? ORDER BY seq DESC LIMIT ?":                                                                                         2,
		"SELECT body FROM cards WHERE namespace = ? AND principal = ? AND principal_kind = ? AND state = ? AND seq > ? AND seq <= ? ORDER BY seq":                      6,
		"SELECT body FROM cards WHERE state = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?":                                                                         4,
		"SELECT count(*) FROM cards WHERE namespace = ? AND turn = ? AND state = ?":                                                                                    3,
		"SELECT count(*) FROM cards WHERE namespace = ? AND principal = ? AND principal_kind = ? AND state = ?":                                                        4,
		"SELECT body FROM cards WHERE namespace = ? AND turn = ? AND call = ?":                                                                                         3,
		"SELECT body FROM cards INDEXED BY cards_unsealed WHERE end_state = 0 AND state IN (3, 4) ORDER BY seq LIMIT ?":                                                1,
		"SELECT cards.body FROM card_log CROSS JOIN cards ON cards.id = card_log.card WHERE card_log.seq > ? AND card_log.namespace = ? ORDER BY card_log.seq LIMIT ?": 3,
		"SELECT body FROM grants WHERE namespace = ? AND principal = ? AND principal_kind = ? AND tool = ? AND ended = 0":                                              4,
		"SELECT body FROM tool_settings WHERE namespace = ? AND tool IN (?, ?) AND current = 1":                                                                        3,
		"SELECT body FROM tool_settings WHERE namespace = ? AND tool IN (?, ?) AND at > ? ORDER BY seq DESC LIMIT ?":                                                   5,
	}
	_ = s.(*sqlite).db.Read(ctx, func(q sqlitedb.Querier) error {
		for query, args := range queries {
			steps, err := collect(ctx, q, func(row scanner) (step string, err error) {
				var id, parent, unused int
				return step, row.Scan(&id, &parent, &unused, &step)
			}, "EXPLAIN QUERY PLAN "+query, make([]any, args)...)
			if err != nil {
				bad = append(bad, query+": "+err.Error())
			}
			for _, step := range steps {
				// a few settings of one tool are sorted; nothing that grows with the number of cards is
				scans := strings.HasPrefix(step, "SCAN") && !strings.Contains(step, "USING")
				sorts := strings.Contains(step, "TEMP B-TREE") && !strings.Contains(query, "tool_settings")
				if scans || sorts {
					bad = append(bad, fmt.Sprintf("%s: %s", query, step))
				}
			}
		}
		return nil
	})
	return bad
}
