package store

// The format is a number that the whole cluster has: what commands it may use, and
// how its checkpoints are written. It begins with FormatFirst and is raised by an
// entry (MemberChange.Format), so that all members change at the same place in the
// log. A version that does not know a format must not apply what comes after that
// entry, and refuses the checkpoints of it (ErrFormat).
const (
	// FormatFirst is what every version knows.
	FormatFirst = 1
	// FormatGrants numbers the grants of TTL leases (TTLLease.Grant), and has those
	// who count their time say which of them they mean (Command.Grants).
	FormatGrants = 2
	// FormatNewest is the newest that this version knows.
	FormatNewest = FormatGrants
)

// Format returns the cluster's format as of the newest entry that was applied.
func (s *Store) Format() int64 { return s.state.Load().format.Load() }
