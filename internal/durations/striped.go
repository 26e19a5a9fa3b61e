package durations

import "time"

// Striped is a Histogram for many goroutines that note at the same time.
type Striped struct{ stripes []*Histogram }

// NewStriped returns a histogram with these bounds, which ascend.
func NewStriped(bounds []time.Duration) *Striped {
	s := &Striped{make([]*Histogram, Stripes)}
	for i := range s.stripes {
		s.stripes[i] = New(bounds)
	}
	return s
}

// Note counts one that took so long. It allocates nothing.
func (s *Striped) Note(took time.Duration) { s.stripes[Stripe()].Note(took) }

// Load returns the counts of all stripes together.
func (s *Striped) Load() Counts {
	all := s.stripes[0].Load()
	for _, h := range s.stripes[1:] {
		c := h.Load()
		all.Count += c.Count
		all.Sum += c.Sum
		all.Max = max(all.Max, c.Max)
		for i := range c.Within {
			all.Within[i] += c.Within[i]
		}
	}
	return all
}
