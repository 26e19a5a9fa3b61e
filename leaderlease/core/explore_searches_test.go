package core

import "github.com/leaderlease/go/leaderlease/internal/explore"

// searches are what is explored. Each has some kinds of trouble and leaves out
// others, or none would come far.
var searches = []bounds{
	{
		name: "settled", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 2, letters: 1,
		budget: budget{crashes: 1, transfers: 1}, limits: explore.Limits{States: 110_000},
	},
	{
		name: "fresh", nodes: 3, d: 2, skew: 1, transfer: 1, terms: 2, letters: 1,
		budget: budget{crashes: 1, transfers: 1}, limits: explore.Limits{States: 50_000},
	},
	{
		// What needs no time to pass: MsgVote before its term is durable, for one.
		name: "orders", still: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 2, letters: 1,
		budget: budget{crashes: 1, transfers: 1}, limits: explore.Limits{States: 120_000},
	},
	{
		name: "letters", settled: true, nodes: 3, d: 3, skew: 1, transfer: 1, terms: 3, letters: 2,
		budget: budget{transfers: 1}, boundCampaigns: true, limits: explore.Limits{States: 125_000},
	},
	{
		// Leaders resign, and live on or crash; the word comes late, and twice.
		name: "resigns", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 3, letters: 1,
		budget: budget{crashes: 1, resigns: 1}, limits: explore.Limits{States: 100_000},
	},
	{
		// Leaders die, and others hear of it at once or late, one after the other.
		name: "dies", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 3, letters: 1,
		budget: budget{crashes: 1, obituaries: 2}, limits: explore.Limits{States: 60_000},
	},
	{
		// Who has died leads again, as another process, when others hear of that.
		name: "lives", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 3, letters: 1,
		opening: []explore.Step{
			{Kind: uint8(doCrash), A: 0},
			{Kind: uint8(doPass)},
			{Kind: uint8(doPass)},
			{Kind: uint8(doStand), A: 0},
			{Kind: uint8(doVote), A: 0, B: 1},
		},
		budget: budget{crashes: 2, obituaries: 2}, limits: explore.Limits{States: 60_000},
	},
	{
		name: "clocks", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 2, letters: 1,
		budget: budget{jumps: 1, backs: 1}, limits: explore.Limits{States: 100_000},
	},
	{
		name: "members", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 2,
		budget: budget{changes: 2}, limits: explore.Limits{States: 100_000},
	},
	{
		name: "growing", settled: true, nodes: 3, learners: 2, d: 2, skew: 1, transfer: 1, terms: 2,
		budget: budget{changes: 2}, limits: explore.Limits{States: 80_000},
	},
	{
		name: "terms", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 3,
		limits: explore.Limits{States: 100_000},
	},
	{
		name: "reigns", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 4, letters: 1,
		budget: budget{transfers: 1}, limits: explore.Limits{States: 60_000},
	},
	{
		// Who has led leads again, as another process with another clock.
		name: "again", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 3,
		budget: budget{crashes: 1}, limits: explore.Limits{States: 350_000},
	},
	{
		// Who has led leads again, and lacks what was committed meanwhile.
		name: "heirs", settled: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 3,
		budget: budget{changes: 1}, limits: explore.Limits{States: 30_000},
	},
	{
		name: "late", settled: true, late: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 3, letters: 1,
		limits: explore.Limits{States: 60_000},
	},
	{
		name: "five", settled: true, nodes: 5, d: 2, skew: 1, transfer: 1, terms: 2,
		limits: explore.Limits{States: 20_000},
	},
	{
		name: "learners", settled: true, nodes: 5, learners: 2, d: 2, skew: 1, transfer: 1, terms: 2,
		limits: explore.Limits{States: 20_000},
	},
	{
		name: "apart", settled: true, apart: true, nodes: 3, d: 2, skew: 1, transfer: 1, terms: 3, letters: 1,
		limits: explore.Limits{States: 60_000},
	},
	{
		// Every other leader asks for more than is saved at first, and processes die while
		// what is saved rises.
		name: "raised", settled: true, nodes: 3, d: 2, floor: 1, saved: 1, skew: 1, transfer: 1, terms: 2,
		budget: budget{crashes: 1}, limits: explore.Limits{States: 100_000},
	},
	{
		// Likewise, while it falls.
		name: "lowered", settled: true, nodes: 3, d: 2, floor: 1, saved: 2, skew: 1, transfer: 1, terms: 2,
		budget: budget{crashes: 2}, limits: explore.Limits{States: 100_000},
	},
	{
		// Three durations. A leader has asked for more than the one before it, of which a probe is
		// still under way, and which stands again; who has promised that has restarted in the
		// older term, and its clock has stepped back.
		name: "owing", settled: true, nodes: 3, d: 3, turns: [3]int{2, 3, 1}, floor: 1, saved: 3, skew: 1, transfer: 1, terms: 3, letters: 1,
		opening: []explore.Step{
			{Kind: uint8(doProbe), A: 0, B: 2},
			{Kind: uint8(doStand), A: 1},
			{Kind: uint8(doVote), A: 1, B: 0},
			{Kind: uint8(doRenew), A: 1, B: 2},
			{Kind: uint8(doCrash), A: 2},
			{Kind: uint8(doTick), A: 2},
			{Kind: uint8(doStepBack), A: 2},
			{Kind: uint8(doStand), A: 0},
		},
		budget: budget{crashes: 2, backs: 1}, limits: explore.Limits{States: 160_000},
	},
	{
		// Likewise, but who has promised gets a memory from before that.
		name: "recalled", settled: true, nodes: 3, d: 3, turns: [3]int{2, 3, 1}, floor: 1, saved: 3, skew: 1, transfer: 1, terms: 3,
		opening: []explore.Step{
			{Kind: uint8(doStand), A: 1},
			{Kind: uint8(doVote), A: 1, B: 0},
			{Kind: uint8(doRenew), A: 1, B: 2},
			{Kind: uint8(doRecall), A: 2},
			{Kind: uint8(doStand), A: 0},
		},
		budget: budget{crashes: 1, jumps: 1}, limits: explore.Limits{States: 60_000},
	},
	{
		// A clock has jumped over the end of a promise.
		name: "jumped", settled: true, nodes: 3, d: 3, floor: 1, saved: 3, skew: 1, transfer: 1, terms: 2,
		opening: []explore.Step{
			{Kind: uint8(doRenew), A: 0, B: 2},
			{Kind: uint8(doJump), A: 2},
		},
		budget: budget{crashes: 1, jumps: 1}, limits: explore.Limits{States: 40_000},
	},
	{
		// A memory from before what was saved has fallen.
		name: "fallen", settled: true, nodes: 3, d: 3, turns: [3]int{2, 3, 1}, floor: 1, saved: 1, skew: 1, transfer: 1, terms: 2,
		opening: []explore.Step{
			{Kind: uint8(doRecall), A: 2},
		},
		budget: budget{crashes: 1, jumps: 1}, limits: explore.Limits{States: 20_000},
	},
	{
		// Leaders ask for more than anybody promises.
		name: "toolong", settled: true, nodes: 3, d: 2, longest: 1, skew: 1, transfer: 1, terms: 2,
		budget: budget{crashes: 1}, limits: explore.Limits{States: 90_000},
	},
}
