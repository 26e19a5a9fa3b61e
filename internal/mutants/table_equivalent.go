package main

import "slices"

// kept is a generated mutant that nothing can catch, or nothing should. It is
// told by its file, its operator and the lines it touches, not by a line number.
type kept struct {
	file, operator, before, after string
	// why is the argument.
	why string
}

// equivalents are skipped and not counted.
var equivalents = []kept{
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
		file: "leaderlease/core/quorum.go", operator: "drop early exit",
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
		file: "leaderlease/core/instant.go", operator: "one unit",
		before: "if d > 0 && sum < i {",
		after:  "if d > 1 && sum < i {",
		why:    "Only Forever is so late that one more wraps, and it is looked at before.",
	},
	{
		file: "leaderlease/core/rate.go", operator: "drop condition",
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
		file: "leaderlease/core/quorum.go", operator: "stale copy",
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
		file: "kvnode/ttl/reign.go", operator: "stale copy",
		before: "if !ok { return nil, store.TTLLease{} } e := r.mu.leases[id]",
		after:  "e := r.mu.leases[id] if !ok { return nil, store.TTLLease{} }",
		why:    "Both are read under mu, and what is read early is not returned.",
	},
	{
		file: "kvnode/ttl/renew.go", operator: "one unit",
		before: "return 0, rpctypes.ErrGRPCLeaseNotFound",
		after:  "return 1, rpctypes.ErrGRPCLeaseNotFound",
		why:    "Beside an error nobody looks at the time.",
	},
	{
		file: "kvnode/ttl/engine.go", operator: "drop call",
		before: "defer ticker.Stop()",
		after:  "",
		why:    "A ticker that nothing refers to is collected; stopping it is tidiness.",
	},
	{
		file: "kvnode/ttl/checkpoint.go", operator: "stale copy",
		before: "e.saved = saved e.save = r.mu.now + served(r.cfg.Checkpoint)",
		after:  "e.save = r.mu.now + served(r.cfg.Checkpoint) e.saved = saved",
		why:    "Both are written under mu, and neither reads what the other writes.",
	},
	{
		file: "kvnode/ttl/checkpoint.go", operator: "negate",
		before: "if err := r.remember(batch); err != nil && r.ctx.Err() == nil {",
		after:  "if err := r.remember(batch); err == nil && r.ctx.Err() == nil {",
		why:    "It decides about a log line only.",
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
}

// equivalent returns the argument that s changes nothing that matters.
func equivalent(s site) (why string, ok bool) {
	i := slices.IndexFunc(equivalents, func(k kept) bool {
		return k.file == s.file && k.operator == s.operator && k.before == s.before && k.after == s.after
	})
	if i < 0 {
		return "", false
	}
	return equivalents[i].why, true
}
