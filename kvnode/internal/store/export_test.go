package store

// Trimming reports whether there is something compacted that is not freed yet.
func (s *Store) Trimming() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.trimming
}
