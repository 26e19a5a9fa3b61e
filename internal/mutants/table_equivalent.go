package main

import (
	"slices"
)

// kept is a generated mutant that nothing can catch, or nothing should. It is
// told by its file, its operator and the lines it touches, not by a line number.
type kept struct {
	file, operator, before, after string
	// above is the line above them, where they alone do not tell; else "".
	above string
	// why is the argument.
	why string
}

// equivalents are skipped and not counted.
var equivalents = slices.Concat(equivalentLibrary, equivalentKvnode)

var equivalentLibrary = []kept{
	{
		file: "leaderlease/core/guard.go", operator: "stale copy",
		before: "g.promise.until, g.owed = 0, 0 g.incarnation = g.incarnation.Next()",
		after:  "g.incarnation = g.incarnation.Next() g.promise.until, g.owed = 0, 0",
		why:    "Neither reads what the other writes.",
	},
	{
		file: "leaderlease/core/lease.go", operator: "boundary",
		before: "case p.until() > l.end:",
		after:  "case p.until() >= l.end:",
		why:    "A promise that ends with the lease cannot move its end; recompute finds the same one again.",
	},
	{
		file: "leaderlease/core/lease.go", operator: "drop early exit",
		before: "if len(ids) == 0 {",
		after:  "if false && (len(ids) == 0) {",
		why:    "Raft takes an empty half for one that there is not, as it does nil.",
	},
	{
		file: "leaderlease/core/lease.go", operator: "drop condition",
		before: "l.clockFault, l.stepped = bad && l.term != 0, l.term != 0",
		after:  "l.clockFault, l.stepped = bad, l.term != 0",
		why:    "Outside a reign nothing asks for clockFault, and Lead sets it anew.",
	},
	{
		file: "leaderlease/core/message.go", operator: "one unit",
		before: "if d > 0 && sum < i {",
		after:  "if d > 1 && sum < i {",
		why:    "Only Forever is so late that one more wraps, and it is looked at before.",
	},
	{
		file: "leaderlease/core/peer.go", operator: "drop condition",
		before: "case w.suspect && window < w.clear:",
		after:  "case window < w.clear:",
		why:    "A clock that is not doubted is left as it is either way, since clear is below the longest window.",
	},
	{
		file: "leaderlease/core/lease.go", operator: "drop condition",
		before: "if p == nil || p.until() <= 0 {",
		after:  "if p.until() <= 0 {",
		why:    "Raft asks for voters only, and SetVoters keeps a record of each.",
	},
	{
		file: "leaderlease/core/lease.go", operator: "stale copy",
		before: "_, in := cfg[0][id] _, out := cfg[1][id]",
		after:  "_, out := cfg[1][id] _, in := cfg[0][id]",
		why:    "Neither writes anything.",
	},
	{
		file: "leaderlease/waiter.go", operator: "one unit",
		before: "return 1",
		after:  "return 2",
		why:    "A comparison is asked for its sign.",
	},
	{
		file: "leaderlease/waiter.go", operator: "stale copy",
		before: "w.in = q q.all = append(q.all, w)",
		after:  "q.all = append(q.all, w) w.in = q",
		why:    "Both are done under the lock, and neither reads what the other writes.",
	},
	{
		file: "leaderlease/ready.go", operator: "drop assignment",
		before: "mu.ownIndex = 0",
		after:  "_ = 0",
		why:    "A reign that begins sets it to 0, and outside a reign nothing asks for it.",
	},
	{
		file: "leaderlease/field.go", operator: "boundary",
		before: "if used < 0 || v == 0 || v > uint64(core.Forever) {",
		after:  "if used <= 0 || v == 0 || v > uint64(core.Forever) {",
		why:    "What could be read has one byte at least.",
	},
	{
		file: "leaderlease/conf.go", operator: "drop condition",
		before: "if broken != \"\" && l.mu.conf.voters.String() == core.Voters(cs).String() {",
		after:  "if l.mu.conf.voters.String() == core.Voters(cs).String() {",
		why:    "It makes empty what is empty.",
	},
	{
		file: "leaderlease/conf.go", operator: "stale copy",
		before: "l.mu.conf.voters = voters l.mu.conf.alone = core.AloneQuorum(voters, l.id())",
		after:  "l.mu.conf.alone = core.AloneQuorum(voters, l.id()) l.mu.conf.voters = voters",
		why:    "Neither reads what the other writes.",
	},
	{
		file: "leaderlease/lease.go", operator: "drop early exit",
		before: "if l.mu.unread {",
		after:  "if false && (l.mu.unread) {",
		why:    "It decides about a log line only.",
	},
	{
		file: "leaderlease/wrap.go", operator: "swap",
		before: "n.stopping, n.cancel = context.WithCancel(context.Background()) n.pumps.Go(n.pumpReady)",
		after:  "n.pumps.Go(n.pumpReady) n.stopping, n.cancel = context.WithCancel(context.Background())",
		why:    "pumpReady asks for neither; pumpReads does, and starts after both.",
	},
	{
		file: "leaderlease/rounds.go", operator: "stale copy",
		before: "r.asked = false done = l.failWaitingLocked(err, everyone)",
		after:  "done = l.failWaitingLocked(err, everyone) r.asked = false",
		why:    "Both are done under the lock, and neither reads what the other writes.",
	},
	{
		file: "leaderlease/clock/vdso_linux.go", operator: "boundary",
		before: "if used := probeVDSO(fn); used == 0 || used > vdsoStack/2 {",
		after:  "if used := probeVDSO(fn); used == 0 || used >= vdsoStack/2 {",
		why:    "The half is arbitrary: a byte more or less of it is as good.",
	},
	{
		file: "leaderlease/clock/vdso_linux.go", operator: "drop early exit",
		above:  "image, err := vdsoImage()",
		before: "if err != nil {",
		after:  "if false && (err != nil) {",
		why:    "In an image that is not there nothing is found, which is an error as well.",
	},
	{
		file: "leaderlease/clock/vdso_linux.go", operator: "drop early exit",
		above:  "size, err := vdso.Size(unsafe.Slice(base, 4096), vdsoMachine)",
		before: "if err != nil {",
		after:  "if false && (err != nil) {",
		why:    "Lookup finds the same fault in the first page, and reads no other before.",
	},
	{
		file: "leaderlease/ready.go", operator: "swap",
		before: "commit = max(commit, rd.CommittedEntries[n-1].GetIndex()) mu.conf.committed(rd.CommittedEntries)",
		after:  "mu.conf.committed(rd.CommittedEntries) commit = max(commit, rd.CommittedEntries[n-1].GetIndex())",
		why:    "Both are done under the lock, and neither reads what the other writes.",
	},
	{
		file: "leaderlease/promises.go", operator: "drop early exit",
		before: "if runtime.GOOS == \"windows\" {",
		after:  "if false && (runtime.GOOS == \"windows\") {",
		why:    "On the systems that the tests run on it is never so.",
	},
	{
		file: "leaderlease/clock/vdso_linux.go", operator: "one unit",
		before: "if used := probeVDSO(fn); used == 0 || used > vdsoStack/2 {",
		after:  "if used := probeVDSO(fn); used == 0 || used > vdsoStack/3 {",
		why:    "It refuses more than it must, which costs a system call a reading.",
	},
	{
		file: "leaderlease/clock/vdso_linux.go", operator: "one unit",
		before: "if used := probeVDSO(fn); used == 0 || used > vdsoStack/2 {",
		after:  "if used := probeVDSO(fn); used == 1 || used > vdsoStack/2 {",
		why:    "What fails when it is probed fails when its readings are checked, too.",
	},
	{
		file: "leaderlease/clock/vdso_linux.go", operator: "drop early exit",
		above:  "auxv, err := unix.Auxv()",
		before: "if err != nil {",
		after:  "if false && (err != nil) {",
		why:    "In a vector that is not there no image is found, which is an error as well.",
	},
	{
		file: "leaderlease/clock/vdso_linux.go", operator: "one unit",
		before: "const vdsoStack = 5120",
		after:  "const vdsoStack = 5119",
		why:    "The bound is arbitrary: what is kept free is a number in the assembly.",
	},
	{
		file: "leaderlease/clock/vdso_linux.go", operator: "one unit",
		before: "return 0, err",
		after:  "return 1, err",
		why:    "Beside an error no caller uses the address.",
	},
	{
		file: "leaderlease/clock/internal/vdso/vdso.go", operator: "one unit",
		before: "const maxSize = 1 << 20",
		after:  "const maxSize = 2 << 20",
		why:    "The bound is arbitrary, far above any vDSO and far below what would wrap.",
	},
	{
		file: "leaderlease/clock/vdso_linux.go", operator: "stale copy",
		before: "if err := vdsoUsable(); err != nil { return nil, err } fn, err := findVDSO()",
		after:  "fn, err := findVDSO() if err := vdsoUsable(); err != nil { return nil, err }",
		why:    "Nothing is called before both.",
	},
	{
		file: "leaderlease/clock/vdso_linux.go", operator: "stale copy",
		before: "if err != nil { return nil, err } c := &vdsoClock{fn: fn, origin: origin}",
		after:  "c := &vdsoClock{fn: fn, origin: origin} if err != nil { return nil, err }",
		why:    "Beside an error the clock is dropped.",
	},
	{
		file: "leaderlease/clock/internal/vdso/vdso.go", operator: "boundary",
		before: "if s.size == 0 || s.size > maxSize || s.entries == 0 {",
		after:  "if s.size == 0 || s.size >= maxSize || s.entries == 0 {",
		why:    "The bound is arbitrary, far above any vDSO.",
	},
	{
		file: "leaderlease/clock/internal/vdso/vdso.go", operator: "boundary",
		before: "if off >= size || n >= size-off {",
		after:  "if off > size || n >= size-off {",
		why:    "At the very end every length is too long.",
	},
	{
		file: "leaderlease/clock/internal/vdso/vdso.go", operator: "one unit",
		before: "func (v *view) u16(off uint64) uint16 { return binary.LittleEndian.Uint16(v.at(off, 2)) }",
		after:  "func (v *view) u16(off uint64) uint16 { return binary.LittleEndian.Uint16(v.at(off, 3)) }",
		why:    "It wants a byte more to be there, and no vDSO ends with what is read so.",
	},
	{
		file: "leaderlease/clock/internal/vdso/vdso.go", operator: "one unit",
		before: "func (v *view) u8(off uint64) uint8 { return v.at(off, 1)[0] }",
		after:  "func (v *view) u8(off uint64) uint8 { return v.at(off, 2)[0] }",
		why:    "It wants a byte more to be there, and no vDSO ends with what is read so.",
	},
	{
		file: "leaderlease/lease.go", operator: "swap",
		before: "mu.conf.known, mu.conf.stored = cfg.ConfIndex, cfg.ConfIndex l.commit.Store(start.commit)",
		after:  "l.commit.Store(start.commit) mu.conf.known, mu.conf.stored = cfg.ConfIndex, cfg.ConfIndex",
		why:    "No other goroutine has the Lease yet, and neither statement reads what the other writes.",
	},
	{
		file: "leaderlease/outbound.go", operator: "swap",
		before: "l.traceProbeLocked(leasetrace.KindProbe, m, m.GetTo(), now, p, ProcessID{}, true) l.stats.probes.Add(1)",
		after:  "l.stats.probes.Add(1) l.traceProbeLocked(leasetrace.KindProbe, m, m.GetTo(), now, p, ProcessID{}, true)",
		why:    "Both are under mu, and a counter says nothing of the trace.",
	},
	{
		file: "leaderlease/core/guard.go", operator: "one unit",
		before: "g.promise.leader, g.promise.term, g.promise.sent, g.promise.process = leader, term, 0, from",
		after:  "g.promise.leader, g.promise.term, g.promise.sent, g.promise.process = leader, term, -1, from",
		why:    "Heartbeats are sent at 0 at the earliest, and releases are told apart by term before: none is at -1.",
	},
	{
		file: "leaderlease/field.go", operator: "one unit",
		before: "if size < 0 {",
		after:  "if size < 1 {",
		why:    "A field of no bytes is none that package protowire reads: the shortest has one.",
	},
	{
		file: "leaderlease/lease.go", operator: "swap",
		before: "l.mu.lease.FailClock() l.mu.unread = true",
		after:  "l.mu.unread = true l.mu.lease.FailClock()",
		why:    "Both are under mu.",
	},
	{
		file: "leaderlease/core/peer.go", operator: "stale copy",
		before: "voter := float64(b.reading - a.reading) least := float64(max(b.sent-a.received, 0))",
		after:  "least := float64(max(b.sent-a.received, 0)) voter := float64(b.reading - a.reading)",
		why:    "Neither reads what the other writes.",
	},
	{
		file: "leaderlease/outbound.go", operator: "swap",
		before: "l.stats.withhold(m.GetType(), false) l.traceMessageLocked(leasetrace.KindCandidacy, m, m.GetTo(), now, nil, false)",
		after:  "l.traceMessageLocked(leasetrace.KindCandidacy, m, m.GetTo(), now, nil, false) l.stats.withhold(m.GetType(), false)",
		why:    "Both are under mu, and a counter says nothing of the trace.",
	},
}

// equivalent returns the argument that s changes nothing that matters.
func equivalent(s site) (why string, ok bool) {
	i := slices.IndexFunc(equivalents, func(k kept) bool {
		return k.file == s.file && k.operator == s.operator && k.before == s.before && k.after == s.after &&
			(k.above == "" || k.above == s.above)
	})
	if i < 0 {
		return "", false
	}
	return equivalents[i].why, true
}

var equivalentKvnode = []kept{
	{
		file: "kvnode/internal/ttl/leadership.go", operator: "stale copy",
		before: "if !ok { return nil, store.TTLLease{} } e := r.mu.leases[id]",
		after:  "e := r.mu.leases[id] if !ok { return nil, store.TTLLease{} }",
		why:    "Both are read under mu, and what is read early is not returned.",
	},
	{
		file: "kvnode/internal/ttl/renew.go", operator: "one unit",
		before: "return 0, rpctypes.ErrGRPCLeaseNotFound",
		after:  "return 1, rpctypes.ErrGRPCLeaseNotFound",
		why:    "Beside an error no caller uses the time.",
	},
	{
		file: "kvnode/internal/ttl/engine.go", operator: "drop call",
		before: "defer ticker.Stop()",
		after:  "",
		why:    "A ticker that nothing refers to is collected; stopping it is tidiness.",
	},
	{
		file: "kvnode/internal/ttl/propose.go", operator: "stale copy",
		before: "e.checkpointed = saved e.checkpointAt = r.mu.now + servedTime(r.cfg.Checkpoint)",
		after:  "e.checkpointAt = r.mu.now + servedTime(r.cfg.Checkpoint) e.checkpointed = saved",
		why:    "Both are written under mu, and neither reads what the other writes.",
	},
	{
		file: "kvnode/internal/ttl/propose.go", operator: "negate",
		before: "if err := r.proposeCheckpoint(batch); err != nil && r.ctx.Err() == nil {",
		after:  "if err := r.proposeCheckpoint(batch); err == nil && r.ctx.Err() == nil {",
		why:    "It decides about a log line only.",
	},
	{
		file: "kvnode/read.go", operator: "stale copy",
		before: "defer pause.Stop() expired := pause.C",
		after:  "expired := pause.C defer pause.Stop()",
		why:    "The field is the same before and after.",
	},
	{
		file: "kvnode/internal/ttl/engine.go", operator: "stale copy",
		before: "r.adopt() ticker := time.NewTicker(e.cfg.Interval)",
		after:  "ticker := time.NewTicker(e.cfg.Interval) r.adopt()",
		why:    "It moves the second tick by the time that adopt takes; ticks count the clock's time, not their number.",
	},
	{
		file: "kvnode/internal/ttl/engine.go", operator: "drop call",
		above:  "if !r.waitApplied() {",
		before: "r.workers.Wait()",
		after:  "",
		why:    "The only worker by then is the one that ends ctx as its last act, and waitApplied has seen it ended.",
	},
	{
		file: "kvnode/internal/ttl/leadership.go", operator: "drop condition",
		before: "if r.mu.last == 0 || now == 0 {",
		after:  "if r.mu.last == 0 {",
		why:    "A reading of 0 lies before the last tick, which gives 0 as well.",
	},
	{
		file: "kvnode/internal/ttl/leadership.go", operator: "one unit",
		before: "if r.mu.last == 0 || now == 0 {",
		after:  "if r.mu.last == 0 || now == 1 {",
		why:    "A reading of 0 lies before the last tick, which gives 0 as well, as does one of 1.",
	},
	{
		file: "kvnode/internal/ttl/leadership.go", operator: "one unit",
		before: "if r.mu.last == 0 || now == 0 {",
		after:  "if r.mu.last == 0 || now == -1 {",
		why:    "A reading of 0 lies before the last tick, which gives 0 as well.",
	},
	{
		file: "kvnode/internal/ttl/propose.go", operator: "wrong result",
		above:  "case r.ctx.Err() != nil:",
		before: "return true",
		after:  "return false",
		why:    "The caller looks at ctx next, and returns.",
	},
	{
		file: "kvnode/internal/ttl/propose.go", operator: "drop early exit",
		before: "case r.ctx.Err() != nil:",
		after:  "case false && (r.ctx.Err() != nil):",
		why:    "The caller looks at ctx next, and returns; before that it decides about a log line and a counter.",
	},
	{
		file: "kvnode/internal/ttl/propose.go", operator: "boundary",
		before: "if e.checkpointing != nil || e.revoking != nil || r.mu.now < e.checkpointAt || seconds(e.TTL) <= every || left <= 0 {",
		after:  "if e.checkpointing != nil || e.revoking != nil || r.mu.now < e.checkpointAt || seconds(e.TTL) < every || left <= 0 {",
		why:    "What is granted for as long as the interval has no time left when its checkpoint is due.",
	},
	{
		file: "kvnode/internal/store/apply.go", operator: "drop condition",
		before: "return r.GetPut() != nil || r.GetLeaseGrant() != nil || r.GetTxn() != nil && txnGrows(r.GetTxn())",
		after:  "return r.GetPut() != nil || r.GetLeaseGrant() != nil || txnGrows(r.GetTxn())",
		why:    "A transaction that is not there has no operations.",
	},
	{
		file: "kvnode/internal/store/apply.go", operator: "drop condition",
		before: "if op.GetRequestPut() != nil || op.GetRequestTxn() != nil && txnGrows(op.GetRequestTxn()) {",
		after:  "if op.GetRequestPut() != nil || txnGrows(op.GetRequestTxn()) {",
		why:    "A transaction that is not there has no operations.",
	},
	{
		file: "kvnode/internal/store/ttl.go", operator: "stale copy",
		before: "m.Records++ m.Sum += uint64(binary.BigEndian.Uint32(value))",
		after:  "m.Sum += uint64(binary.BigEndian.Uint32(value)) m.Records++",
		why:    "Neither reads what the other writes.",
	},
	{
		file: "kvnode/read.go", operator: "one unit",
		before: "const readPause = 10 * time.Millisecond",
		after:  "const readPause = 9 * time.Millisecond",
		why:    "It bounds how often a read is tried again, and is arbitrary.",
	},
	{
		file: "kvnode/apply.go", operator: "stale copy",
		before: "if errors.Is(plan.Refusal, confchange.ErrMalformed) { a.invalid.report(plan.Refusal, \"index\", e.GetIndex()) } // The loop may find a change of the leader while it applies the change, and must not fail the proposal with // ErrLeaderChanged: its result is known. answer := a.proposals.Claim(plan.Proposal)",
		after:  "answer := a.proposals.Claim(plan.Proposal) // The loop may find a change of the leader while it applies the change, and must not fail the proposal with // ErrLeaderChanged: its result is known. if errors.Is(plan.Refusal, confchange.ErrMalformed) { a.invalid.report(plan.Refusal, \"index\", e.GetIndex()) }",
		why:    "Neither reads what the other writes.",
	},
	{
		file: "kvnode/internal/store/meta.go", operator: "stale copy",
		before: "st.sealedIndex, st.sealedRevision = m.Index, m.Revision members := &Members{ByID: map[uint64]Member{}, Removed: map[uint64]bool{}}",
		after:  "members := &Members{ByID: map[uint64]Member{}, Removed: map[uint64]bool{}} st.sealedIndex, st.sealedRevision = m.Index, m.Revision",
		why:    "No other goroutine has the state yet, and neither statement reads what the other writes.",
	},
	{
		file: "kvnode/internal/ttl/renew.go", operator: "one unit",
		before: "return 0, ErrNotLeader",
		after:  "return 1, ErrNotLeader",
		why:    "With an error the number says nothing.",
	},
	{
		file: "kvnode/internal/ttl/leadership.go", operator: "boundary",
		before: "case holds && r.held && !first && now != 0 && gap >= 0 && gap <= r.cfg.MaxGap:",
		after:  "case holds && r.held && !first && now != 0 && gap > 0 && gap <= r.cfg.MaxGap:",
		why:    "A gap of nothing adds nothing.",
	},
	{
		file: "kvnode/internal/store/range.go", operator: "wrong sign",
		before: "return resp.GetCount() < limit+chunk",
		after:  "return resp.GetCount() < limit-chunk",
		why:    "It decides when the rest is counted by place instead of one by one; both count alike.",
	},
	{
		file: "kvnode/internal/store/compact.go", operator: "one unit",
		before: "if q.head >= 1024 && q.head*2 >= len(q.list) {",
		after:  "if q.head >= 1023 && q.head*2 >= len(q.list) {",
		why:    "It decides when memory is given back, by one element.",
	},
	{
		file: "kvnode/internal/store/range.go", operator: "one unit",
		before: "steps := 0",
		after:  "steps := -1",
		why:    "It decides when a context is looked at.",
	},
}
