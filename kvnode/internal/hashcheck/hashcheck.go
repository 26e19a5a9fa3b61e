// Package hashcheck finds members whose stores are not what the log has made of
// the others': hashes of equal revisions that differ.
//
// # What it promises
//
// Members that have applied the same log are never said to differ: hashes are
// compared only if they are of the same revision and after the same compaction,
// both of which say all that a hash depends on, and a difference is believed when
// it shows twice. A member that does not answer, is of a version whose hash says nothing,
// or is compacted meanwhile, is left out, with the reason.
//
// Whose data is right is for the majority to say. Where no more than half of all
// members agree, nobody knows, and nobody is named.
//
// # What it relies on
//
// All versions hash alike (store.Hash), apart from 0, which earlier ones had for an
// empty store. A change of what is hashed gives members a way to say so first,
// or clusters of two versions raise the alarm.
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

// Report is what a comparison of all members has found.
type Report struct {
	// Members is how many there are.
	Members int
	// Camps are those who agree with each other, the largest first.
	Camps [][]*Member
	// Differences are why there is more than one camp.
	Differences []*Difference
	// Unknown are those who are in no camp, and why.
	Unknown []Unknown
}

// Unknown is a member that could not be compared.
type Unknown struct {
	Member *Member
	Err    error
}

// Limits bound how long a comparison of all members takes.
type Limits struct {
	// Each is how long two members may take. A member that takes longer is in no camp.
	Each time.Duration
	// Rest is how long the others may take once most members agree.
	Rest time.Duration
}

// Judge compares all members with the first of them, then those that differ with the
// first of those, and so on. They are asked at once: nobody who is silent hides
// another one.
func Judge(ctx context.Context, members []*Member, l Limits) *Report {
	r := &Report{Members: len(members)}
	for left := members; len(left) > 0; {
		left = r.round(ctx, left, l)
	}
	slices.SortStableFunc(r.Camps, func(a, b []*Member) int { return len(b) - len(a) })
	return r
}

// round makes the camp of the first of those left, and returns who differs from it.
func (r *Report) round(ctx context.Context, left []*Member, l Limits) (differ []*Member) {
	camp := left[:1:1]
	differences, errs := r.ask(ctx, left[0], left[1:], l)
	for i, m := range left[1:] {
		switch {
		case errs[i] != nil:
			r.Unknown = append(r.Unknown, Unknown{m, errs[i]})
		case differences[i] == nil:
			camp = append(camp, m)
		default:
			r.Differences = append(r.Differences, differences[i])
			differ = append(differ, m)
		}
	}
	r.Camps = append(r.Camps, camp)
	return differ
}

// ask compares each of the others with one member.
func (r *Report) ask(ctx context.Context, one *Member, others []*Member, l Limits) (differences []*Difference, errs []error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	differences, errs = make([]*Difference, len(others)), make([]error, len(others))
	answered := make(chan int)
	for i, m := range others {
		go func() {
			ctx, cancel := context.WithTimeout(ctx, l.Each)
			defer cancel()
			differences[i], errs[i] = compare(ctx, one, m)
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

// Right returns the camp of more than half of all members, nil if there is none.
func (r *Report) Right() []*Member {
	if len(r.Camps) > 0 && len(r.Camps[0]) > r.Members/2 {
		return r.Camps[0]
	}
	return nil
}

// Corrupt returns the members that differ from those who are right, nil if all
// agree or nobody knows.
func (r *Report) Corrupt() []*Member {
	if r.Right() == nil {
		return nil
	}
	return slices.Concat(r.Camps[1:]...)
}

// Pending reports whether a later comparison may find out more: a member has yet to catch up,
// has not had the time to answer, or had too many requests.
func (r *Report) Pending() bool {
	return slices.ContainsFunc(r.Unknown, func(u Unknown) bool {
		code := status.Code(u.Err)
		return errors.Is(u.Err, ErrBehind) || errors.Is(u.Err, context.DeadlineExceeded) || code == codes.DeadlineExceeded || code == codes.ResourceExhausted
	})
}

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
