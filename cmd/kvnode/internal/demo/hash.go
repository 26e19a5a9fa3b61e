package demo

import (
	"context"
	"fmt"

	"github.com/leaderlease/go/internal/kvclient"
)

// sameHash claims that all members hold the same data, as of a revision that
// all have: the load goes on meanwhile.
func (p *play) sameHash(ctx context.Context) error {
	var at kvclient.Answer
	err := until(ctx, func(ctx context.Context) (err error) {
		at, err = p.director.get(ctx, p.clients[p.leader], firstKey, modeAuto)
		return err
	})
	if err != nil {
		return err
	}
	hashes := make([]hash, len(p.clients))
	for i, c := range p.clients {
		if hashes[i], err = c.hash(ctx, at.Revision); err != nil {
			return fmt.Errorf("hash of %s: %w", c.m.Name, err)
		}
	}
	p.claimf(allEqual(hashes), "all three hold the same data: HashKV is %08x at revision %d", hashes[0].hash, at.Revision)
	return nil
}

// hash is what a member says about its data. What was compacted is not in it,
// so the compacted revision belongs to it.
type hash struct {
	member    string
	hash      uint32
	compacted int64
}

func (c *client) hash(ctx context.Context, revision int64) (h hash, err error) {
	err = until(ctx, func(ctx context.Context) error {
		r, err := c.HashKV(ctx, c.m.Endpoint, revision)
		if err == nil {
			h = hash{c.m.Name, r.Hash, r.CompactRevision}
		}
		return err // it may not have that revision yet
	})
	return h, err
}

func allEqual(hashes []hash) error {
	for _, h := range hashes {
		if first := hashes[0]; h.hash != first.hash || h.compacted != first.compacted {
			return fmt.Errorf("%s has %08x (compacted at %d), %s has %08x (compacted at %d)",
				first.member, first.hash, first.compacted, h.member, h.hash, h.compacted)
		}
	}
	return nil
}
