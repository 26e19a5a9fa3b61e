package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// storyLimit ends a story that hangs. It is far beyond what a slow machine
// needs.
const storyLimit = 4 * time.Minute

// play is the story: its members, its clients, and what one scene leaves to the
// next.
type play struct {
	*script
	*cluster

	cast     *cast
	director *actor // what the scenes themselves ask is recorded too
	load     *load

	leader  int // index of the member that led when last asked
	term    uint64
	nap     *nap
	crashed *client // to the member that was killed
}

// tell plays the story on a cluster that has not been started.
func tell(ctx context.Context, o *options, out *printer, c *cluster) error {
	ctx, cancel := context.WithTimeoutCause(ctx, storyLimit, fmt.Errorf("the story has taken longer than %v", storyLimit))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case m := <-c.died:
			stop(errors.New(m.ExitReport()))
		case <-ctx.Done():
		}
	}()

	p := &play{script: &script{out: out, pace: o.pace}, cluster: c, cast: newCast()}
	p.director = p.cast.actor()
	out.linef("A story of three nodes on this machine, in about 30 seconds of real time.")
	out.linef("✓ was checked and held, ✗ did not hold, · informs. Files: %s", c.dir)
	err := p.run(ctx, p.scenes())
	if p.load != nil {
		p.load.stop()
	}
	if p.nap != nil {
		err = errors.Join(err, p.nap.close())
	}
	if o.keep || o.dir != "" || err != nil {
		err = errors.Join(err, c.keepPage(out))
	}
	return err
}

// scenes are the story. Each builds on those before.
func (p *play) scenes() []scene {
	return []scene{
		{"Election", "Three nodes with empty disks start and elect a leader: before that\nnobody may answer anything.", p.election},
		{"Reads under the lease", "Clients begin to read and write. While a majority promises to elect no\nother member, the leader may read from its own memory; a ReadIndex read asks first.", p.reads},
		{"The leader freezes", "The leader is stopped with SIGSTOP. The others have promised to wait, and\nmust: it may have served a read an instant ago.", p.freeze},
		{"It wakes up", "It still believes that it leads, and reads wait in its socket: answered from\nits memory they would show what was overwritten meanwhile.", p.awake},
		{"A crash", "The leader is killed with SIGKILL. Its connections end with it, so the others wait\nfor no longer than they have promised. Started again, it must know what it had\nagreed to.", p.crash},
		{"A transfer", "Leadership is transferred on purpose. The old leader gives its lease up\nfirst, so the next need not wait for the promises to end.", p.transfer},
		{"Verdict", "Is there one order of everything that the clients did in which a single copy\nof the data would have given the same answers?", p.verdict},
	}
}

// patience is the timeout of each wait. It is generous, since the story makes no claims
// about speed.
const patience = 30 * time.Second

// retryPause is between two tries.
const retryPause = 10 * time.Millisecond

// until tries do until it succeeds, and says why it did not if that takes too
// long.
func until(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %v", patience))
	defer cancel()
	var last error
	for {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // once the time is over, errors say only that
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
	}
}

// findLeader waits until all members name the same leader, and it agrees.
func (p *play) findLeader(ctx context.Context) error {
	return until(ctx, func(ctx context.Context) error {
		leader, term := -1, uint64(0)
		var named string
		for i, c := range p.clients {
			r, err := c.status(ctx)
			if err != nil {
				return fmt.Errorf("status of %s: %w", c.m.Name, err)
			}
			if i == 0 {
				named, term = r.Leader, r.Term
			}
			if r.Leader == "" || r.Leader != named || r.Term != term {
				return fmt.Errorf("%s names leader %q in term %d, another names %q in term %d", c.m.Name, r.Leader, r.Term, named, term)
			}
			if r.Role == "leader" && r.ID == named {
				leader = i
			}
		}
		if leader < 0 {
			return fmt.Errorf("%q is named leader and does not say so itself", named)
		}
		p.leader, p.term = leader, term
		return nil
	})
}

// followers returns the members that do not lead, as of findLeader.
func (p *play) followers() (all []*client) {
	for i, c := range p.clients {
		if i != p.leader {
			all = append(all, c)
		}
	}
	return all
}

// written is a key and the values that may have been written to it last.
type written struct {
	key    string
	values []string
}

// writeNew writes a new key until the write is acknowledged. Each try uses another key, since a try
// that failed may still take effect.
func (p *play) writeNew(ctx context.Context, c *client, prefix string) (written, error) {
	var w written
	try := 0
	err := until(ctx, func(ctx context.Context) error {
		try++
		key := fmt.Sprintf("%s-%d", prefix, try)
		value, err := p.director.put(ctx, c, key)
		w = written{key, []string{value}}
		return err
	})
	if err != nil {
		return w, fmt.Errorf("write %s: %w", prefix, err)
	}
	return w, nil
}

// readBack waits for a linearizable read of a key at one member, and checks what
// it shows.
func (p *play) readBack(ctx context.Context, c *client, want written) error {
	return until(ctx, func(ctx context.Context) error {
		got, err := p.director.get(ctx, c, want.key, modeAuto)
		if err == nil && !slices.Contains(want.values, got.Value) {
			err = fmt.Errorf("%s at %s is %q, which was not written last: %q was", want.key, c.m.Name, got.Value, want.values)
		}
		return err
	})
}

func differs(what, got, want string) error {
	if got != want {
		return fmt.Errorf("%s is %q, not %q", what, got, want)
	}
	return nil
}
