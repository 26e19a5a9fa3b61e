package autocompact

import (
	"fmt"
	"strconv"
	"time"
)

// Modes of Parse, etcd's own.
const (
	Periodic = "periodic"
	Revision = "revision"
)

// Policy says how much history compaction leaves. At most one field is set; with
// neither nothing is compacted.
type Policy struct {
	// Period is for how long a revision can be read after it was replaced.
	Period time.Duration
	// Revisions is how many revisions before the newest can be read.
	Revisions int64
}

// minPeriod keeps the tenth of a period, which is how often revisions are looked
// at, a time that means something.
const minPeriod = 10 * time.Millisecond

// Parse understands retention as etcd does: in mode revision a number of revisions,
// in mode periodic a duration with its unit, or a number of hours. 0 means no
// compaction.
func Parse(mode, retention string) (Policy, error) {
	n, err := strconv.ParseInt(retention, 10, 64)
	isNumber := err == nil && n >= 0
	switch mode {
	case Revision:
		if !isNumber {
			return Policy{}, fmt.Errorf("retention %q must be a number of revisions, 0 or more, in mode %s", retention, mode)
		}
		return Policy{Revisions: n}, nil
	case Periodic:
	default:
		return Policy{}, fmt.Errorf("mode %q must be %s or %s", mode, Periodic, Revision)
	}
	const maxHours = int64(1<<63-1) / int64(time.Hour)
	if isNumber {
		if n > maxHours {
			return Policy{}, fmt.Errorf("retention of %d hours must be %d hours at most", n, maxHours)
		}
		return Policy{Period: time.Duration(n) * time.Hour}, nil
	}
	d, err := time.ParseDuration(retention)
	if err != nil || d < 0 || d > 0 && d < minPeriod {
		return Policy{}, fmt.Errorf("retention %q must be 0, a number of hours, or a duration of %v at least with its unit, such as 30m, in mode %s", retention, minPeriod, mode)
	}
	return Policy{Period: d}, nil
}

// Enabled reports whether anything is ever compacted.
func (p Policy) Enabled() bool { return p != Policy{} }
