package store

import "sync"

// maxMemo bounds a memo; a full one is emptied.
const maxMemo = 10000

// memo keeps what was read from a store that only this process writes. What a write may have changed is forgotten after
// its commit and before its caller is answered, and what was read while that happened is not kept: nobody who was told of
// a change decides without it.
type memo[K comparable, V any] struct {
	mu         sync.Mutex
	generation uint64
	known      map[K]V
}

// get returns what is known, or reads it.
func (m *memo[K, V]) get(key K, read func() (V, error)) (V, error) {
	m.mu.Lock()
	v, ok := m.known[key]
	generation := m.generation
	m.mu.Unlock()
	if ok {
		return v, nil
	}
	v, err := read()
	if err != nil {
		return v, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if generation == m.generation {
		if m.known == nil || len(m.known) >= maxMemo {
			m.known = map[K]V{}
		}
		m.known[key] = v
	}
	return v, nil
}

// forget forgets one key.
func (m *memo[K, V]) forget(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generation++
	delete(m.known, key)
}

// clear forgets everything.
func (m *memo[K, V]) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generation++
	m.known = nil
}
