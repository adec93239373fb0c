package turn

import (
	"container/list"
	"sync"
)

// toolset is a frozen set of tools as a call asks for it: by canonical id, then by alias.
type toolset struct {
	tools   []Tool
	byID    map[string]*Tool
	byAlias map[string]*Tool
	size    int64
}

func newToolset(tools []Tool) *toolset {
	s := &toolset{tools: tools, byID: make(map[string]*Tool, len(tools)), byAlias: make(map[string]*Tool, len(tools))}
	for i := range tools {
		t := &tools[i]
		s.byID[t.ID], s.byAlias[t.Alias] = t, t
		s.size += int64(len(t.Definition)) + 1024
	}
	return s
}

func (s *toolset) find(name string) (Tool, bool) {
	t := s.byID[name]
	if t == nil {
		t = s.byAlias[name]
	}
	if t == nil {
		return Tool{}, false
	}
	return *t, true
}

// lru is a bounded map that forgets what was used longest ago. Its owner guards it.
type lru[V any] struct {
	max   int64 // of the sum of sizes
	sum   int64
	order *list.List // of *item[V], newest first
	items map[string]*list.Element
}

type item[V any] struct {
	key   string
	value V
	size  int64
}

func newLRU[V any](limit int64) *lru[V] {
	return &lru[V]{max: limit, order: list.New(), items: map[string]*list.Element{}}
}

func (l *lru[V]) get(key string) (v V, ok bool) {
	e := l.items[key]
	if e == nil {
		return v, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*item[V]).value, true
}

func (l *lru[V]) put(key string, v V, size int64) {
	l.drop(key)
	l.items[key] = l.order.PushFront(&item[V]{key, v, size})
	l.sum += size
	for l.sum > l.max && l.order.Len() > 1 {
		l.drop(l.order.Back().Value.(*item[V]).key)
	}
}

func (l *lru[V]) drop(key string) {
	e := l.items[key]
	if e == nil {
		return
	}
	l.order.Remove(e)
	delete(l.items, key)
	l.sum -= e.Value.(*item[V]).size
}

// cache keeps open turns and toolsets in memory, so that resolving a call asks no store. A toolset never changes. A turn
// changes once, when it ends, and is dropped then; epoch keeps a reader that began before the end from putting the old
// state back.
type cache struct {
	mu    sync.Mutex
	epoch uint64
	turns *lru[Turn]
	sets  *lru[*toolset]
}

// newCache bounds the number of turns and the bytes of toolsets.
func newCache(turns, setBytes int64) *cache {
	return &cache{turns: newLRU[Turn](turns), sets: newLRU[*toolset](setBytes)}
}

func (c *cache) turn(id string) (t Turn, ok bool, epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok = c.turns.get(id)
	return t, ok, c.epoch
}

// putTurn keeps a turn that was read from the store in the given epoch. Ended ones are not kept: they are asked for
// seldom.
func (c *cache) putTurn(t Turn, epoch uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch == c.epoch && t.State == Open {
		c.turns.put(t.ID, t, 1)
	}
}

func (c *cache) ended(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	c.turns.drop(id)
}

func (c *cache) set(name string) (*toolset, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sets.get(name)
}

func (c *cache) putSet(name string, s *toolset) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sets.put(name, s, s.size)
}
