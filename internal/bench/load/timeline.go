package load

import (
	"encoding/json"
	"strconv"
	"sync/atomic"
	"time"
)

// Kind is what an operation does.
type Kind uint8

// The kinds of operations.
const (
	Read Kind = iota
	Write
	kinds
)

// String returns read or write.
func (k Kind) String() string { return [...]string{"read", "write"}[k] }

// Timeline counts operations by when they ended.
type Timeline struct {
	Bucket time.Duration
	start  time.Time
	slots  [kinds][]slot
}

type slot struct{ done, failed, stale atomic.Int64 }

// Count is what ended within one Bucket. In JSON it is the list of its three
// numbers, or the first one alone if the others are 0: there are thousands.
type Count struct{ Done, Failed, Stale int64 }

// MarshalJSON implements json.Marshaler.
func (c Count) MarshalJSON() ([]byte, error) {
	if c.Failed == 0 && c.Stale == 0 {
		return strconv.AppendInt(nil, c.Done, 10), nil
	}
	return json.Marshal([]int64{c.Done, c.Failed, c.Stale})
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Count) UnmarshalJSON(data []byte) error {
	*c = Count{}
	if len(data) > 0 && data[0] != '[' {
		return json.Unmarshal(data, &c.Done)
	}
	var three [3]int64
	err := json.Unmarshal(data, &three)
	c.Done, c.Failed, c.Stale = three[0], three[1], three[2]
	return err
}

// NewTimeline begins now.
func NewTimeline(bucket, length time.Duration) *Timeline {
	t := &Timeline{Bucket: bucket, start: time.Now()}
	for k := range t.slots {
		t.slots[k] = make([]slot, length/bucket+1)
	}
	return t
}

// Start returns when the timeline begins.
func (t *Timeline) Start() time.Time { return t.start }

func (t *Timeline) record(k Kind, at time.Time, failed, stale bool) {
	i := int(at.Sub(t.start) / t.Bucket)
	if i < 0 || i >= len(t.slots[k]) {
		return
	}
	s := &t.slots[k][i]
	switch {
	case failed:
		s.failed.Add(1)
	default:
		s.done.Add(1)
	}
	if stale {
		s.stale.Add(1)
	}
}

// Counts returns the buckets of a kind.
func (t *Timeline) Counts(k Kind) []Count {
	counts := make([]Count, len(t.slots[k]))
	for i := range counts {
		s := &t.slots[k][i]
		counts[i] = Count{Done: s.done.Load(), Failed: s.failed.Load(), Stale: s.stale.Load()}
	}
	return counts
}

// Unavailable returns the longest time, after from, in which no operation of a
// kind was done that was right: a stale read is no service. Its resolution is a
// Bucket. If nothing was right any more it reaches to the end.
func (t *Timeline) Unavailable(k Kind, from time.Duration) time.Duration {
	var longest, run int
	for _, s := range t.Counts(k)[min(int(from/t.Bucket), len(t.slots[k])):] {
		if run++; s.Done > s.Stale {
			run = 0
		}
		longest = max(longest, run)
	}
	return time.Duration(longest) * t.Bucket
}
