package e2e

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leaderlease/go/internal/flood"
)

// chaosFlood is for how long the leader is flooded. With -slow it is floodLasts.
const chaosFlood = 3 * time.Second

// floodTheLeader floods the leader. A busy machine may be too slow for a flood that is one, or
// replace a leader by itself, but hardly each time: without -slow one of three is enough.
func (c *chaos) floodTheLeader() error {
	if *slowFlag {
		return c.floodOnce(floodLasts)
	}
	var errs []error
	for lasts := chaosFlood; len(errs) < 3; lasts *= 2 {
		err := c.floodOnce(lasts)
		if err == nil {
			return nil
		}
		c.t.Log(err)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// floodOnce floods the leader. It keeps its leadership and serves clients meanwhile.
func (c *chaos) floodOnce(lasts time.Duration) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*recovery)
	defer cancel()
	lead, err := c.c.Leader(ctx)
	if err != nil {
		return err
	}
	before, err := lead.WaitStatus(ctx)
	if err != nil {
		return err
	}
	kind := flood.Kinds[0]
	if *slowFlag {
		kind = flood.Kinds[c.random.IntN(len(flood.Kinds))]
	}
	flooding, end := context.WithTimeout(ctx, lasts)
	defer end()
	rounds, wait := floodMember(flooding, lead, kind)
	for flooding.Err() == nil && err == nil {
		err = c.l.WaitProgress(ctx, progress)
	}
	end()
	wait()
	if err != nil {
		return fmt.Errorf("while clients flood the leader by %q the cluster does not serve: %w", kind.Name, err)
	}
	after, err := anyStatus(ctx, c.c)
	if err != nil {
		return err
	}
	c.t.Logf("a flood of %q for %v: %d rounds", kind.Name, lasts, rounds.Load())
	if after.RaftTerm != before.RaftTerm || after.Leader != before.Leader {
		return fmt.Errorf("a flood of %q cost %s its leadership: term %d and leader %x became %d and %x",
			kind.Name, lead.Name, before.RaftTerm, before.Leader, after.RaftTerm, after.Leader)
	}
	return nil
}
