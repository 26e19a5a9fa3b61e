package store

import (
	"context"
	"fmt"
)

// Summary describes the snapshot in a file.
type Summary struct {
	Checkpoint
	// Hash is HashKV's of the newest revision.
	Hash Hash
	// Keys is the number of keys at the newest revision, Versions that of all
	// versions that are kept, tombstones included, and TTLLeases that of leases.
	Keys, Versions, TTLLeases int
}

// Inspect reads all of the snapshot in the file path and changes nothing.
func Inspect(path string) (Summary, error) {
	img, err := openFile(path)
	if err != nil {
		return Summary{}, fmt.Errorf("store: inspect snapshot %s: %w", path, err)
	}
	s, err := inspect(img)
	if cerr := img.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return Summary{}, fmt.Errorf("store: inspect snapshot %s: %w", path, err)
	}
	return s, nil
}

func inspect(img Image) (Summary, error) {
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
	err = w.scanChains(context.Background(), nil, nil, func(of *chain) {
		if of.head.Load().live() != nil {
			s.Keys++
		}
		for v := of.head.Load(); v != nil; v = v.prev.Load() {
			s.Versions++
		}
	})
	return s, err
}
