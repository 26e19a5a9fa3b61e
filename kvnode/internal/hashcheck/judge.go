package hashcheck

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
