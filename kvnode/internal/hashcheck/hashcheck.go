// Package hashcheck compares the hashes of members' stores at equal revisions and reports members
// that differ.
//
// # Guarantees
//
// Members that applied the same log are never reported as different. Hashes are compared only for
// the same revision and the same compaction, which determine what a hash covers, and a difference
// counts only if a second comparison confirms it. A member that does not answer, or that compacts
// during the comparison, is reported as unknown, with the reason.
//
// The majority decides which data is right. If no more than half of all members agree, no member is
// reported as corrupt.
//
// # Requirements
//
// All versions compute the same hash (store.Hash), except that earlier ones returned 0 for an empty store. Before a
// version may compute another hash, members must be able to tell each other which one they compute. Otherwise
// clusters with several versions raise the CORRUPT alarm.
package hashcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// Report is the result of a comparison of all members.
type Report struct {
	// Members is the number of members.
	Members int
	// Groups are the sets of members with equal data, the largest first.
	Groups [][]*Member
	// Differences explain why there is more than one group.
	Differences []*Difference
	// Unknown lists the members in no group.
	Unknown []Unknown
}

// Unknown is a member that could not be compared, and the reason.
type Unknown struct {
	Member *Member
	Err    error
}

// Limits bound the time of a comparison of all members.
type Limits struct {
	// Each is the limit for one pair of members. A member that takes longer is unknown.
	Each time.Duration
	// Rest is the limit for the remaining members after a majority agrees.
	Rest time.Duration
}

// Compare compares the first member with all others, and does the same with the members that differ from it, until
// none is left. Comparisons run concurrently, so that the delays of silent members do not add up.
func Compare(ctx context.Context, members []*Member, l Limits) *Report {
	r := &Report{Members: len(members)}
	for left := members; len(left) > 0; {
		left = r.compareFirst(ctx, left, l)
	}
	slices.SortStableFunc(r.Groups, func(a, b []*Member) int { return len(b) - len(a) })
	return r
}

// compareFirst builds the group of the first member and returns the members that differ from it.
func (r *Report) compareFirst(ctx context.Context, left []*Member, l Limits) (differ []*Member) {
	group := left[:1:1]
	differences, errs := r.compareWith(ctx, left[0], left[1:], l)
	for i, m := range left[1:] {
		switch {
		case errs[i] != nil:
			r.Unknown = append(r.Unknown, Unknown{m, errs[i]})
		case differences[i] == nil:
			group = append(group, m)
		default:
			r.Differences = append(r.Differences, differences[i])
			differ = append(differ, m)
		}
	}
	r.Groups = append(r.Groups, group)
	return differ
}

// compareWith compares each of the others with one member.
func (r *Report) compareWith(ctx context.Context, one *Member, others []*Member, l Limits) (differences []*Difference, errs []error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	differences, errs = make([]*Difference, len(others)), make([]error, len(others))
	answered := make(chan int)
	for i, m := range others {
		go func() {
			ctx, cancel := context.WithTimeout(ctx, l.Each)
			defer cancel()
			differences[i], errs[i] = comparePair(ctx, one, m)
			answered <- i
		}()
	}
	agree := 1
	for range others {
		if i := <-answered; errs[i] != nil || differences[i] != nil {
			continue
		}
		if agree++; agree == r.Members/2+1 {
			time.AfterFunc(l.Rest, cancel) // harmless if all have answered by then
		}
	}
	return differences, errs
}

// Majority returns the group with more than half of all members, nil if there is none.
func (r *Report) Majority() []*Member {
	if len(r.Groups) > 0 && len(r.Groups[0]) > r.Members/2 {
		return r.Groups[0]
	}
	return nil
}

// Corrupt returns the members that differ from the majority. It is nil if all agree or there is no
// majority.
func (r *Report) Corrupt() []*Member {
	if r.Majority() == nil {
		return nil
	}
	return slices.Concat(r.Groups[1:]...)
}

// Pending reports whether a later comparison may have fewer unknown members: a member has yet to catch up, did not
// answer in time, or was overloaded.
func (r *Report) Pending() bool {
	return slices.ContainsFunc(r.Unknown, func(u Unknown) bool {
		code := status.Code(u.Err)
		return errors.Is(u.Err, ErrBehind) || errors.Is(u.Err, context.DeadlineExceeded) || code == codes.DeadlineExceeded || code == codes.ResourceExhausted
	})
}

// Member is a member to compare.
type Member struct {
	ID   uint64
	Name string
	// Hash returns the hash of the member's keys at a revision, 0 meaning its newest.
	Hash func(ctx context.Context, revision int64) (store.Hash, error)
}

// String implements fmt.Stringer.
func (m *Member) String() string { return fmt.Sprintf("%s (%x)", m.Name, m.ID) }

var (
	// ErrBehind means that two members have no common revision with the same compaction. A
	// later comparison may find one.
	ErrBehind = errors.New("hashcheck: no common revision yet")
	// errUnknown means that a hash is 0 and cannot be compared.
	errUnknown = errors.New("hashcheck: the hash is 0: the member runs an older version, and its store is empty")
)

// Difference is a pair of members with different data.
type Difference struct {
	A, B *Member
	// HashA and HashB have the same revision and compaction.
	HashA, HashB store.Hash
}

// String implements fmt.Stringer.
func (d *Difference) String() string {
	return fmt.Sprintf("at revision %d, compacted at %d, the hash of %s is %d and that of %s is %d",
		d.HashA.HashRevision, d.HashA.CompactRevision, d.A, d.HashA.Hash, d.B, d.HashB.Hash)
}

// attempts is how often a comparison fetches hashes until both have the same revision and compaction. A compaction
// may come in between, but all members make it within milliseconds of each other.
const attempts = 3

// comparePair compares two members at the newest revision that both have. It returns nil if they agree.
func comparePair(ctx context.Context, a, b *Member) (*Difference, error) {
	var last *Difference
	for range 2 { // a difference must be confirmed
		d, err := compareOnce(ctx, a, b)
		if d == nil || err != nil {
			return nil, err
		}
		last = d
	}
	return last, nil
}

func compareOnce(ctx context.Context, a, b *Member) (*Difference, error) {
	err := ErrBehind
	for range attempts {
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

// common returns the hashes of both members at the older of their newest revisions.
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

// is reports whether err is want, an error of etcd, either itself or as it comes through gRPC.
func is(err, want error) bool {
	return err != nil && status.Convert(err).Message() == status.Convert(want).Message()
}
