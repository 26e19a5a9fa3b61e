package store

// Trimming reports whether there is something compacted that is not freed yet.
func (s *Store) Trimming() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.trimming
}

// Settle is what Settle of a bbolt database does to its file.
func Settle(f settleFile, pageSize int) error { return settle(f, int64(pageSize)) }
