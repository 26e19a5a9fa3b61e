package leasetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/leaderlease"
)

// RunScript plays a scenario: a datadriven file with directives for a Cluster and their
// expected output. With -rewrite it writes the output anew. Raft's election jitter is pinned,
// so a scenario plays the same way each time.
//
// Nodes are named by ID, lists are in parentheses, times are durations:
//
//	new [voters=(1,2,3)] [learners=(4)] [spares=(5)] [async=(1,…)] [durable] [early=(…)] [stock=(…)] [plain=(…)]
//	    [tick=100ms] [election=10] [heartbeat=1]
//	    [duration=900ms] [skew=180ms] [max-promise=…] [drift-ppm=…] [long]
//	run 500ms | tick [n] | heartbeat 1
//	elect 1 | campaign 1 | forget 2 | force-elect 2 [votes=(2,3)] [limit=5s] | transfer 1 to=2 | resign 1 to=2
//	process-died 2 of=1
//	hold [type=MsgVote] [from=1] [to=(2,3)] | pass | release … | drop … | messages
//	delay type=MsgTimeoutNow by=(350ms,2s)
//	cut from=1 to=(2,3) | join 1 2 | split a=(1,2) b=(3,4) | isolate 1 | heal
//	clock 1 rate=0.9 | step=-1s | stop | start | fail | recover | disrupt | step=1s within
//	pause 1 | resume 1 [ticks-first] | suspend 1 [stop-clock] | wake 1 [ticks-first]
//	crash 1 [survive=n] [torn] [power] | saving 1 promise=600ms | restart 1 | lag 1 by=10ms | adopt 3 from=1 | old 1
//	 disk 1 delay=5ms | apply 1 delay=5ms
//	change 1 [add=(4,5)] [remove=2] [learner=3] [v1] [explicit|implicit] | change 1 leave
//	compact 1 | checkpoint 1 | invalidate 1 | close 1 | burst 1 ticks=20 | fill 1
//	mistake 1 none|never|copies|clones|late|forgets|twice|repeats|old|ahead|again|claims
//	overtake 1 [type=MsgVote] by=150ms
//	configure 1 [duration=…] [skew=…] [max-promise=…] [drift-ppm=…] [long]
//	write 1 key=7 [nowait] | read 1 key=7 [wait=100ms] [quorum|raft] [cancel=later|early] | try-read 1 key=7
//	work 1 | cancel | overlap 1 key=7 from=2 by=300ms [waits]
//	status [1]
//
// Each directive prints what happened while it ran: elections (and whether a
// lease of an older term was still valid), finished writes, answered reads (and
// whether they were stale), and "ok" if nothing did.
func RunScript(t *testing.T, path string) {
	t.Helper()
	s := &script{pin: func() { cryptotest.SetGlobalRandom(t, 1) }}
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		return s.run(t, d)
	})
}

// RunScripts plays each scenario of a directory in a subtest.
func RunScripts(t *testing.T, dir string) {
	t.Helper()
	datadriven.Walk(t, dir, RunScript)
}

// script is a scenario being played.
type script struct {
	c    *Cluster
	held []*matcher
	// pin makes each cluster draw the same election timeouts, whatever was played before.
	pin func()
	// delays are the deliveries of the message types that have their own.
	delays map[raftpb.MessageType][]time.Duration
	disk   map[uint64]time.Duration
	apply  map[uint64]time.Duration

	out     strings.Builder
	writes  uint64
	written map[uint64]uint64   // newest version of each key that is known to be applied
	open    map[uint64]openRead // reads that wait, by number
	reads   uint64
	// contexts are the contexts of reads and of work, which cancel ends.
	contexts []*askedContext
	// works are the stop functions of work contexts.
	works []func()
}

// directives by name; each prints to s.out.
var directives = map[string]func(*script, *args){
	"new": (*script).create, "run": (*script).pass, "tick": (*script).tick, "heartbeat": (*script).heartbeat,
	"elect": (*script).elect, "campaign": (*script).campaign, "forget": (*script).forget,
	"force-elect": (*script).forceElect, "transfer": (*script).transfer, "resign": (*script).resign, "process-died": (*script).processDied,
	"hold": (*script).hold, "pass": (*script).unhold, "release": (*script).release, "drop": (*script).drop,
	"messages": (*script).messages, "delay": (*script).delay,
	"cut": (*script).cut, "join": (*script).join, "split": (*script).split, "isolate": (*script).isolate, "heal": (*script).heal,
	"clock": (*script).clock, "pause": (*script).pause, "resume": (*script).resume,
	"suspend": (*script).suspend, "wake": (*script).wake, "crash": (*script).crash, "restart": (*script).restart,
	"disk": (*script).diskDelay, "apply": (*script).applyDelay,
	"change": (*script).change, "compact": (*script).compact, "checkpoint": (*script).checkpoint, "invalidate": (*script).invalidate, "close": (*script).close,
	"mistake": (*script).mistake, "overtake": (*script).overtake, "configure": (*script).configure,
	"fill": (*script).fill, "burst": (*script).burst,
	"write": (*script).write, "read": (*script).read, "try-read": (*script).tryRead, "cancel": (*script).cancel, "work": (*script).work,
	"lag": (*script).lag, "adopt": (*script).adopt, "saving": (*script).saving, "overlap": (*script).overlap, "old": (*script).old, "status": (*script).status,
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	do := directives[d.Cmd]
	if do == nil {
		d.Fatalf(t, "unknown directive %q", d.Cmd)
	}
	if s.c == nil && d.Cmd != "new" {
		d.Fatalf(t, "%s before new", d.Cmd)
	}
	s.out.Reset()
	a := &args{t: t, d: d, used: make(map[string]bool)}
	do(s, a)
	a.done()
	if s.out.Len() == 0 {
		return "ok\n"
	}
	return s.out.String()
}

func (s *script) printf(format string, v ...any) { fmt.Fprintf(&s.out, format+"\n", v...) }

// event prints something that happened, with the time.
func (s *script) event(format string, v ...any) {
	s.printf("%v: %s", s.c.Now().Round(time.Microsecond), fmt.Sprintf(format, v...))
}

// wrong prints an event that no script may cause.
func (s *script) wrong(what string) { s.event("WRONG: %s", what) }

func (s *script) create(a *args) {
	opts := Options{
		Voters: a.ids("voters"), Learners: a.ids("learners"), Spares: a.ids("spares"),
		TickInterval: a.duration("tick", 0), ElectionTick: a.number("election"), HeartbeatTick: a.number("heartbeat"),
		Configure: a.leaseConfig(),
	}
	async, stock, plain := a.ids("async"), a.ids("stock"), a.ids("plain")
	early := a.ids("early")
	allAsync := a.flag("async") && len(async) == 0
	*s = script{
		delays: make(map[raftpb.MessageType][]time.Duration),
		disk:   make(map[uint64]time.Duration), apply: make(map[uint64]time.Duration), written: make(map[uint64]uint64),
		open: make(map[uint64]openRead), out: s.out, pin: s.pin,
	}
	opts.Node = func(id uint64) NodeOptions {
		o := NodeOptions{
			Async: allAsync || slices.Contains(async, id), EarlyAdvance: slices.Contains(early, id),
			DiskDelay: func() time.Duration { return s.disk[id] }, ApplyDelay: func() time.Duration { return s.apply[id] },
		}
		if slices.Contains(stock, id) {
			o.Kind = Stock
		}
		if slices.Contains(plain, id) {
			o.Kind = Plain
		}
		return o
	}
	if a.flag("durable") {
		opts.NewMachine = func(_ uint64, conf *raftpb.ConfState) Machine { return newDurableMachine(conf) }
	}
	s.pin()
	s.c = New(opts)
	s.c.OnLeader = s.won
	s.c.Net.Hold = s.holds
	s.c.Net.Plan = s.plan
}

// leaseConfig returns the durations among the arguments of new or configure.
func (a *args) leaseConfig() func(uint64, *leaderlease.Config) {
	a.t.Helper()
	lease := leaderlease.Config{
		Duration: a.duration("duration", 0), MaxClockSkew: a.duration("skew", 0), MaxPromise: a.duration("max-promise", 0),
		MaxDriftPPM: a.number("drift-ppm"), AllowLongDuration: a.flag("long"),
	}
	return func(_ uint64, cfg *leaderlease.Config) {
		cfg.Duration, cfg.MaxClockSkew, cfg.MaxPromise = lease.Duration, lease.MaxClockSkew, lease.MaxPromise
		cfg.MaxDriftPPM, cfg.AllowLongDuration = lease.MaxDriftPPM, lease.AllowLongDuration
	}
}

// won prints an election, and whether it came while a lease was valid.
func (s *script) won(n *Node, term uint64) {
	s.event("node %d leads term %d", n.ID, term)
	for _, o := range s.c.Nodes() {
		if o != n && o.Up() && o.Term() < term && o.Valid() {
			s.event("OVERLAP: node %d holds the lease of term %d", o.ID, o.Term())
		}
	}
}

func (s *script) status(a *args) {
	nodes := s.c.Nodes()
	if a.has(0) {
		nodes = []*Node{a.node(s, 0)}
	}
	for _, n := range nodes {
		s.printf("%s", n.describe())
	}
}

// describe is one line about a node.
func (n *Node) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d: ", n.ID)
	if !n.up {
		b.WriteString("down")
		return b.String()
	}
	role := strings.ToLower(strings.TrimPrefix(n.role.String(), "State"))
	fmt.Fprintf(&b, "%s term=%d voters=%v applied=%d", role, n.term, n.conf.GetVoters(), n.Applied())
	if out := n.conf.GetVotersOutgoing(); len(out) > 0 {
		fmt.Fprintf(&b, " outgoing=%v", out)
	}
	if learners := n.conf.GetLearners(); len(learners) > 0 {
		fmt.Fprintf(&b, " learners=%v", learners)
	}
	if n.paused {
		b.WriteString(" paused")
	}
	if n.lease == nil {
		return b.String()
	}
	st := n.lease.Info()
	fmt.Fprintf(&b, " lease=%v", st.Status)
	if st.Status == leaderlease.StatusValid {
		fmt.Fprintf(&b, " remaining=%v", short(st.Remaining))
	}
	if st.Promise.Remaining > 0 {
		fmt.Fprintf(&b, " promise=%d/%d for %v", st.Promise.Leader, st.Promise.Term, short(st.Promise.Remaining))
	}
	if st.Promise.Hold > 0 {
		fmt.Fprintf(&b, " hold=%v", short(st.Promise.Hold))
	}
	return b.String()
}

func short(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// args reads the arguments of one directive. An argument that the directive does not read
// is an error.
type args struct {
	t    *testing.T
	d    *datadriven.TestData
	used map[string]bool
}

func (a *args) fail(format string, v ...any) {
	a.t.Helper()
	a.d.Fatalf(a.t, format, v...)
}

// done fails the test if an argument was misspelt.
func (a *args) done() {
	a.t.Helper()
	for i, arg := range a.d.CmdArgs {
		if !a.used[arg.Key] && !a.used[place(i)] {
			a.fail("%s: unknown argument %s", a.d.Cmd, arg.Key)
		}
	}
}

func place(i int) string { return "#" + strconv.Itoa(i) }

// has reports whether there is an argument without a value in place i.
func (a *args) has(i int) bool { return i < len(a.d.CmdArgs) && len(a.d.CmdArgs[i].Vals) == 0 }

// text returns the argument in place i, "" if there is none.
func (a *args) text(i int) string {
	a.t.Helper()
	if i >= len(a.d.CmdArgs) {
		a.fail("%s: argument %d is missing", a.d.Cmd, i+1)
	}
	a.used[place(i)] = true
	return a.d.CmdArgs[i].Key
}

// node returns the node named in place i.
func (a *args) node(s *script, i int) *Node {
	a.t.Helper()
	n := s.c.Node(a.parseID(a.text(i)))
	if n == nil {
		a.fail("%s: no node %s", a.d.Cmd, a.d.CmdArgs[i].Key)
	}
	return n
}

func (a *args) parseID(s string) uint64 {
	a.t.Helper()
	id, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		a.fail("%s: %v", a.d.Cmd, err)
	}
	return id
}

func (a *args) parseDuration(s string) time.Duration {
	a.t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		a.fail("%s: %v", a.d.Cmd, err)
	}
	return d
}

// values returns the values of a named argument.
func (a *args) values(key string) []string {
	arg, ok := a.d.Arg(key)
	if !ok {
		return nil
	}
	a.used[key] = true
	return arg.Vals
}

func (a *args) flag(key string) bool {
	if !a.d.HasArg(key) {
		return false
	}
	a.used[key] = true
	return true
}

func (a *args) ids(key string) (ids []uint64) {
	a.t.Helper()
	for _, v := range a.values(key) {
		ids = append(ids, a.parseID(v))
	}
	return ids
}

// id returns the one ID of a named argument that must be there.
func (a *args) id(key string) uint64 {
	a.t.Helper()
	ids := a.ids(key)
	if len(ids) != 1 {
		a.fail("%s: %s needs one value", a.d.Cmd, key)
	}
	return ids[0]
}

// number returns a named argument, 0 if it is not there.
func (a *args) number(key string) int {
	a.t.Helper()
	v := a.values(key)
	if len(v) == 0 {
		return 0
	}
	n, err := strconv.Atoi(v[0])
	if err != nil {
		a.fail("%s: %s: %v", a.d.Cmd, key, err)
	}
	return n
}

func (a *args) float(key string) (f float64, ok bool) {
	a.t.Helper()
	v := a.values(key)
	if len(v) == 0 {
		return 0, false
	}
	f, err := strconv.ParseFloat(v[0], 64)
	if err != nil {
		a.fail("%s: %s: %v", a.d.Cmd, key, err)
	}
	return f, true
}

func (a *args) duration(key string, otherwise time.Duration) time.Duration {
	a.t.Helper()
	v := a.values(key)
	if len(v) == 0 {
		return otherwise
	}
	return a.parseDuration(v[0])
}

// matcher says which messages a directive is about.
type matcher struct {
	types    []raftpb.MessageType
	from, to []uint64
}

func (a *args) matcher() *matcher {
	a.t.Helper()
	m := &matcher{from: a.ids("from"), to: a.ids("to")}
	for _, name := range a.values("type") {
		v, ok := raftpb.MessageType_value[name]
		if !ok {
			a.fail("%s: no message type %s", a.d.Cmd, name)
		}
		m.types = append(m.types, raftpb.MessageType(v))
	}
	return m
}

func (m *matcher) match(msg *raftpb.Message) bool {
	return (len(m.types) == 0 || slices.Contains(m.types, msg.GetType())) &&
		(len(m.from) == 0 || slices.Contains(m.from, msg.GetFrom())) &&
		(len(m.to) == 0 || slices.Contains(m.to, msg.GetTo()))
}
