package sim

import (
	"github.com/leaderlease/go/leaderlease/leasetest"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// traceRoom is for the events that come between two Readys or messages of a node.
const traceRoom = 4096

// traceOracle keeps the traces of all Leases, by node and process, and checks them at the end
// of the run.
type traceOracle struct {
	processes []*leasetrace.Process // in the order of their starts
	newest    map[uint64]*tracing
}

// tracing is a trace that is being read.
type tracing struct {
	*leasetrace.Process
	from *leasetrace.Trace
}

func (o *traceOracle) init() { o.newest = make(map[uint64]*tracing) }

// begin gives the next process of a node its trace.
func (o *traceOracle) begin(id uint64) *leasetrace.Trace {
	o.take(id)
	t := &tracing{Process: &leasetrace.Process{Ended: true}, from: leasetrace.New(traceRoom)}
	o.newest[id] = t
	o.processes = append(o.processes, t.Process)
	return t.from
}

// take reads what a node's present process has traced.
func (o *traceOracle) take(id uint64) {
	if t := o.newest[id]; t != nil {
		t.Take(t.from)
	}
}

// all returns the traces of the run.
func (o *traceOracle) all() (all []leasetrace.Process) {
	for id := range o.newest {
		o.take(id)
	}
	for _, p := range o.processes {
		all = append(all, *p)
	}
	return all
}

// judgeTraces checks that the rules allow every event.
func (s *sim) judgeTraces() {
	if !s.cfg.Trace {
		return
	}
	if s.res.Traces = s.traces.all(); len(s.res.Traces) == 0 {
		return // no member has the library
	}
	v := leasetrace.Judge(s.res.Traces)
	s.res.Judged += uint64(v.Events())
	if err := v.Err(); err != nil && !s.cfg.Misused {
		s.violatef("trace", 0, "%v", err)
	}
}

func (s *sim) takeTrace(n *leasetest.Node) {
	if s.cfg.Trace {
		s.traces.take(n.ID)
	}
}
