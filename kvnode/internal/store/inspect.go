package store

import "context"

// Summary describes the snapshot in a file.
type Summary struct {
	Checkpoint
	// Hash is HashKV's of the newest revision.
	Hash Hash
	// Keys is the number of keys at the newest revision, Versions that of all
	// versions that are kept, tombstones included, and TTLLeases that of TTL leases.
	Keys, Versions, TTLLeases int
}

// Inspect reads all of a snapshot. It returns ErrNoCheckpoint if it is of nothing.
func Inspect(img Image) (Summary, error) {
	st, c, err := loadImage(img)
	if err != nil {
		return Summary{}, err
	}
	if c.Index == 0 {
		return Summary{}, ErrNoCheckpoint
	}
	compacted := st.compacted.Load()
	s := Summary{
		Checkpoint: c, TTLLeases: len(st.leases.all),
		Hash: Hash{CompactRevision: compacted, HashRevision: c.Revision, Revision: c.Revision},
	}
	w := st.view()
	if s.Hash.Hash, err = w.hash(compacted); err != nil {
		return Summary{}, err
	}
	_, err = w.scanChains(context.Background(), nil, nil, func(of *chain) bool {
		if of.head.Load().live() != nil {
			s.Keys++
		}
		for v := of.head.Load(); v != nil; v = v.prev.Load() {
			s.Versions++
		}
		return true
	})
	return s, err
}
