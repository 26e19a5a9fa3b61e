package hashcheck

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// Member is one of those to compare.
type Member struct {
	ID   uint64
	Name string
	// Hash hashes the member's keys as of a revision, 0 meaning its newest.
	Hash func(ctx context.Context, revision int64) (store.Hash, error)
}

// String implements fmt.Stringer.
func (m *Member) String() string { return fmt.Sprintf("%s (%x)", m.Name, m.ID) }

var (
	// ErrBehind means that two members have no revision and compaction in common
	// yet. A later comparison may find one.
	ErrBehind = errors.New("hashcheck: no common revision yet")
	// errUnknown means that a hash says nothing.
	errUnknown = errors.New("hashcheck: it is of a version whose hash of an empty store is 0")
)

// Difference is two members that hold different data.
type Difference struct {
	A, B *Member
	// HashA and HashB are of the same revision and after the same compaction.
	HashA, HashB store.Hash
}

// String implements fmt.Stringer.
func (d *Difference) String() string {
	return fmt.Sprintf("at revision %d, compacted at %d, the hash of %s is %d and that of %s is %d",
		d.HashA.HashRevision, d.HashA.CompactRevision, d.A, d.HashA.Hash, d.B, d.HashB.Hash)
}

// tries bounds how often hashes are taken anew because a compaction came between
// them. Members compact within milliseconds of each other.
const tries = 3

// compare compares two members at the newest revision that both have, and returns
// nil if they agree.
func compare(ctx context.Context, a, b *Member) (*Difference, error) {
	var first *Difference
	for range 2 { // a difference that does not last is none
		d, err := compareOnce(ctx, a, b)
		if d == nil || err != nil {
			return nil, err
		}
		first = d
	}
	return first, nil
}

func compareOnce(ctx context.Context, a, b *Member) (*Difference, error) {
	err := ErrBehind
	for range tries {
		var ha, hb store.Hash
		if ha, hb, err = common(ctx, a, b); err != nil {
			return nil, err
		}
		switch {
		case ha.Hash == 0 || hb.Hash == 0:
			return nil, errUnknown
		case ha.HashRevision != hb.HashRevision || ha.CompactRevision != hb.CompactRevision:
			err = fmt.Errorf("%w: %s has revision %d, compacted at %d, %s has %d, compacted at %d",
				ErrBehind, a, ha.HashRevision, ha.CompactRevision, b, hb.HashRevision, hb.CompactRevision)
		case ha.Hash != hb.Hash:
			return &Difference{a, b, ha, hb}, nil
		default:
			return nil, nil
		}
	}
	return nil, err
}

// common returns the hashes of both members as of the older of their newest
// revisions.
func common(ctx context.Context, a, b *Member) (ha, hb store.Hash, err error) {
	if hb, err = b.hash(ctx, 0); err != nil {
		return ha, hb, err
	}
	ha, err = a.hash(ctx, hb.HashRevision)
	if !is(err, rpctypes.ErrGRPCFutureRev) {
		return ha, hb, err
	}
	if ha, err = a.hash(ctx, 0); err != nil {
		return ha, hb, err
	}
	hb, err = b.hash(ctx, ha.HashRevision)
	return ha, hb, err
}

func (m *Member) hash(ctx context.Context, revision int64) (store.Hash, error) {
	h, err := m.Hash(ctx, revision)
	if is(err, rpctypes.ErrGRPCCompacted) {
		return h, fmt.Errorf("%w: %s has compacted revision %d", ErrBehind, m, revision)
	}
	return h, err
}

// is reports whether err is an error of etcd's, which has come by gRPC or not.
func is(err, want error) bool {
	return err != nil && status.Convert(err).Message() == status.Convert(want).Message()
}
