package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/leaderlease/go/internal/kvclient"
	"github.com/leaderlease/go/kvnode/server/status"
)

const (
	// redrawEvery is the interval of updates on a terminal, lineEvery that of
	// lines elsewhere.
	redrawEvery = time.Second
	lineEvery   = 5 * time.Second
)

// live runs a cluster until ctx ends: by Ctrl-C.
func live(ctx context.Context, out *printer, c *cluster) error {
	out.linef("Starting three nodes …")
	begun := time.Now()
	if err := c.Start(); err != nil {
		return err
	}
	first, err := c.firstWrite(ctx)
	if ctx.Err() != nil {
		return c.Stop()
	}
	if err != nil {
		return err
	}
	out.linef("Ready after %s. Wrote %s = %q and read it back, path %q.", short(time.Since(begun)), helloKey, first.Value, first.Path)
	c.greet(ctx, out)
	return c.show(ctx, out)
}

const (
	helloKey   = "hello"
	helloValue = "world"
)

// firstWrite writes a key and reads it under the lease.
func (c *cluster) firstWrite(ctx context.Context) (got kvclient.Answer, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case m := <-c.died:
			cancel(errors.New(m.ExitReport()))
		case <-ctx.Done():
		}
	}()
	err = until(ctx, func(ctx context.Context) error {
		leader, err := c.leading(ctx)
		if err != nil {
			return err
		}
		if _, err := leader.Put(ctx, helloKey, helloValue); err != nil {
			return err
		}
		if got, err = leader.read(ctx, helloKey, modeLease); err != nil {
			return err
		}
		return differs("the path of the first read", got.Path, pathLease)
	})
	for _, cl := range c.clients {
		err = errors.Join(err, until(ctx, cl.ready))
	}
	return got, err
}

// ready checks that the member has served a linearizable read.
func (c *client) ready(ctx context.Context) error {
	r, err := c.status(ctx)
	if err == nil && !r.Ready {
		err = fmt.Errorf("%s is not ready", c.m.Name)
	}
	return err
}

// leading returns the client of the member that reports to be the leader.
func (c *cluster) leading(ctx context.Context) (*client, error) {
	err := errors.New("no member leads")
	for _, cl := range c.clients {
		r, statusErr := cl.status(ctx)
		if statusErr == nil && r.Role == "leader" {
			return cl, nil
		}
		if statusErr != nil {
			err = fmt.Errorf("status of %s: %w", cl.m.Name, statusErr)
		}
	}
	return nil, err
}

// show updates a status line until ctx ends, and reports members that die.
func (c *cluster) show(ctx context.Context, out *printer) error {
	every := lineEvery
	if out.terminal() {
		every = redrawEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		line := c.statusLine(ctx)
		if ctx.Err() == nil {
			out.status(line)
		}
		select {
		case <-ctx.Done():
			out.linef("Stopping …")
			return c.Stop()
		case m := <-c.died:
			out.linef("%s", m.ExitReport())
			if !c.anyRunning() {
				return errors.New("no node is left")
			}
		case <-tick.C:
		}
	}
}

func (c *cluster) anyRunning() bool {
	for _, m := range c.Members() {
		if m.Running() {
			return true
		}
	}
	return false
}

// view is a member's report about itself, if it answers.
type view struct {
	name    string
	running bool
	report  status.Report
	err     error
}

// statusLine asks all members and summarizes their answers.
func (c *cluster) statusLine(ctx context.Context) string {
	views := make([]view, len(c.clients))
	var wg sync.WaitGroup
	for i, cl := range c.clients {
		wg.Go(func() {
			r, err := cl.status(ctx)
			views[i] = view{cl.m.Name, cl.m.Running(), r, err}
		})
	}
	wg.Wait()
	return summary(views)
}

// summary describes a cluster in one line.
func summary(views []view) string {
	reads := make(map[string]uint64)
	var leader *view
	var silent []string
	for i := range views {
		v := &views[i]
		if v.err != nil {
			silent = append(silent, v.name+" "+v.silence())
			continue
		}
		for path, n := range v.report.Reads {
			reads[path] += n
		}
		// If two members report to lead, the one with the older term does not know its successor yet.
		if v.report.Role == "leader" && (leader == nil || v.report.Term > leader.report.Term) {
			leader = v
		}
	}
	parts := []string{"no leader"}
	if leader != nil {
		r := &leader.report
		parts = []string{
			fmt.Sprintf("%s leads term %d", leader.name, r.Term),
			fmt.Sprintf("lease %s, %.0f ms + %.0f margin", r.Lease.State, r.Lease.RemainingMS, r.Lease.MarginMS),
			fmt.Sprintf("applied %d", r.Applied),
		}
	}
	parts = append(parts, silent...)
	if len(reads) > 0 {
		parts = append(parts, "reads: "+list(reads))
	}
	return strings.Join(parts, " | ")
}

func (v *view) silence() string {
	if !v.running {
		return "does not run"
	}
	return "does not answer"
}
