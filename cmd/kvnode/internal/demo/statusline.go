package demo

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/leaderlease/go/kvnode/server/status"
)

// view is what one member says about itself, if it answers.
type view struct {
	name    string
	running bool
	report  status.Report
	err     error
}

// statusLine asks all members and sums up what they say.
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

// summary is one line about a cluster.
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
		// Of two that say so, one does not know yet.
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
