package report

import (
	"errors"
	"fmt"
	"strings"

	"github.com/leaderlease/go/bench/internal/load"
)

// ErrAudit says that the figures of a run must not be believed, or show a bug.
var ErrAudit = errors.New("report: the audit failed")

// MayBeStale reports whether reads of an arm are allowed to be stale, and it says
// so by its name.
func MayBeStale(arm string) bool {
	return arm == "serializable" || strings.HasSuffix(arm, "-serializable")
}

// Verdict fails if an arm that promises linearizable reads served a stale one, if
// the audit did not catch an arm that is wrong on purpose, or if leaderlease served
// a stale read to a partitioned client.
func (r *Report) Verdict() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for i := range r.Measurements {
		m := &r.Measurements[i]
		if m.Stale > 0 && !MayBeStale(m.Arm) {
			bad("%s %s: arm %s: %s: %d stale of %d", m.Layer, m.Group, m.Arm, m.Op, m.Stale, m.Done)
		}
		if n := m.Paths[load.PathSerializable.String()]; n > 0 && !MayBeStale(m.Arm) {
			bad("%s %s: arm %s had %d reads served by path serializable", m.Layer, m.Group, m.Arm, n)
		}
	}
	for _, a := range r.Audits {
		if !a.Caught {
			bad("arm %s is wrong on purpose, and none of its %d reads was found to be stale", a.Arm, a.Reads)
		}
	}
	for _, s := range r.Staleness {
		if s.StaleReads > 0 && s.Arm == "leaderlease" {
			bad("leaderlease served %d stale reads of %d under partition", s.StaleReads, s.Reads)
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w: %w", ErrAudit, errors.Join(errs...))
	}
	return nil
}
