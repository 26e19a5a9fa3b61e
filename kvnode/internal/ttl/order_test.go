package ttl

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Of TTL leases that begin between the same two ticks each ends at its own time,
// also those behind a longer one.
func TestTheShortestEndsFirst(t *testing.T) {
	for name, ttls := range map[string][]int64{"in order": {10, 30, 60}, "the longest first": {60, 30, 10}} {
		t.Run(name, func(t *testing.T) {
			inRig(t, nil, func(t *testing.T, r *rig) {
				r.lead(1)
				time.Sleep(50 * time.Millisecond) // between two ticks
				for _, ttl := range ttls {
					r.grant(ttl, ttl)
				}
				time.Sleep(10*sec + 150*time.Millisecond)
				r.wantGone("10")
				time.Sleep(20 * sec)
				r.wantGone("10", "30")
			})
		})
	}
}

// confirming is a member on which something happens while it confirms that it leads.
type confirming struct {
	Member
	meanwhile func()
}

func (c *confirming) Confirm(ctx context.Context, term uint64) error {
	if f := c.meanwhile; f != nil {
		c.meanwhile = nil
		f()
	}
	return c.Member.Confirm(ctx, term)
}

// What is left is read after the confirmation: what was true before it may have been
// said by a leader that was none any more.
func TestTimeLeftIsReadAfterTheConfirmation(t *testing.T) {
	m := &confirming{}
	inRig(t, func(c *Config) { m.Member, c.Member = c.Member, m }, func(t *testing.T, r *rig) {
		r.lead(1)
		r.grant(1, 10)
		m.meanwhile = func() { r.revoke(1) }
		if left, err := r.engine.TimeLeft(t.Context(), 1); !errors.Is(err, rpctypes.ErrGRPCLeaseNotFound) {
			t.Errorf("TimeLeft() of what was revoked meanwhile = %+v, %v, want %v", left, err, rpctypes.ErrGRPCLeaseNotFound)
		}
	})
}
