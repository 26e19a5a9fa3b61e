package hashcheck

import (
	"context"
	"errors"
	"slices"
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

// Judge compares all members. Each is asked by way of those who speak for a camp,
// the first of all members first.
func Judge(ctx context.Context, members []*Member) *Report {
	r := &Report{Members: len(members)}
	for _, m := range members {
		r.place(ctx, m)
	}
	slices.SortStableFunc(r.Camps, func(a, b []*Member) int { return len(b) - len(a) })
	return r
}

// place puts a member into the camp whose speaker it agrees with, or into one of
// its own if it differs from all of them.
func (r *Report) place(ctx context.Context, m *Member) {
	var found []*Difference
	for i, camp := range r.Camps {
		d, err := compare(ctx, camp[0], m)
		switch {
		case err != nil:
			r.Unknown = append(r.Unknown, Unknown{m, err})
			return
		case d == nil:
			r.Camps[i] = append(camp, m)
			return
		}
		found = append(found, d)
	}
	r.Differences = append(r.Differences, found...)
	r.Camps = append(r.Camps, []*Member{m})
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

// Pending reports whether a later comparison may find out more: somebody has yet
// to catch up.
func (r *Report) Pending() bool {
	return slices.ContainsFunc(r.Unknown, func(u Unknown) bool { return errors.Is(u.Err, ErrBehind) })
}
