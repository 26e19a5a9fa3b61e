package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/leaderlease/go/leaderlease/leasepage"
)

// says returns what the page says in words at an instant of a picture of members "1", "2" and so on.
const says = `((t, proved, lanes) => {
	accept({ full: true, from: 0, to: 100, proved, lanes: Object.entries(lanes).map(([id, l]) => ({ id, name: "n" + id,
		heard: [{ from: 0, to: 100 }], holds: [], renewals: [], reads: [], flags: [], promises: [], leases: [], ...l })) });
	tell(t);
	const text = (id) => document.getElementById(id).textContent;
	return [text("count") + " " + text("what"), text("holder"), text("unknown")].join("; ");
})`

// The page says in words what a sole voter's lease is, and what is not known in a partition.
func TestLeasePageSaysWhatItKnows(t *testing.T) {
	ctx := blankPage(t)
	const (
		sole    = `{term: 2, from: 10, known: 10, usable: 100, end: 100, before: 0, after: 0}`
		finite  = `{term: 2, from: 10, known: 12, usable: 80, end: 90, before: 0, after: 0, reads: 70, margin: 10}`
		silence = `heard: [{from: 0, to: 20}]`
		promise = `promises: [{to: "1", term: 2, from: 11, end: 90}]`
	)
	for _, tc := range []struct{ name, args, want string }{
		{"a sole voter", `(50, false, {1: {leases: [` + sole + `]}})`, "1 valid leader lease; n1 holds it in term 2: reads without a limit, as the only voter; "},
		{
			"a sole voter and a learner that is not heard", `(50, false, {1: {leases: [` + sole + `]}, 2: {learner: true, heard: []}})`,
			"1 valid leader lease; n1 holds it in term 2: reads without a limit, as the only voter; unknown: n2 is not heard",
		},
		{"the end of the trace of a sole voter", `(100, true, {1: {leases: [` + sole + `]}})`, "1 valid leader lease; n1 holds it in term 2: reads without a limit, as the only voter; "},
		{"after the trace of a sole voter", `(150, true, {1: {leases: [` + sole + `]}})`, "0–1 valid leader leases; not known: n1 may hold one; unknown: n1 is not heard"},
		{"a sole voter that is not heard any more", `(150, false, {1: {leases: [` + sole + `]}})`, "0–1 valid leader leases; not known: n1 may hold one; unknown: n1 is not heard"},
		{
			"a sole voter that is back", `(150, true, {1: {leases: [` + sole + `], heard: [{from: 0, to: 100}, {from: 140, to: 160}]}})`,
			"0 valid leader leases; nothing is known of n1 for 50.0 ms, which held it in term 2 as the only voter; ",
		},
		{
			"a sole voter that gave its lease up", `(95, false, {1: {leases: [{...` + sole + `, usable: 90, end: 90, why: "transferring"}]}})`,
			"0 valid leader leases; that of n1 was given up (transferring) 5.0 ms before; ",
		},
		{
			"a partition, seen from the leader", `(50, false, {1: {leases: [` + finite + `]}, 2: {` + promise + `}, 3: {` + silence + `}})`,
			"1 valid leader lease; n1 holds it in term 2: reads for 30.0 ms more, margin 10.0 ms; unknown: n3 is not heard",
		},
		{
			"a partition, seen from a member that hears neither", `(50, false, {1: {` + silence + `}, 2: {` + silence + `}, 3: {}})`,
			"0–1 valid leader leases; not known: n1 or n2 may hold one; unknown: n1, n2 are not heard",
		},
		{
			"a partition that the leader has lost", `(95, false, {1: {leases: [` + finite + `], ` + silence + `}, 2: {}, 3: {}})`,
			"0 valid leader leases; that of n1 has run out 5.0 ms before; unknown: n1 is not heard",
		},
	} {
		var got string
		must(t, chromedp.Run(ctx, chromedp.Evaluate(says+tc.args, &got)))
		if got != tc.want {
			t.Errorf("%s: the page says %q, want %q", tc.name, got, tc.want)
		}
	}
	must(t, chromedp.Cancel(ctx))
}

// blankPage opens a page without a picture.
func blankPage(t *testing.T) context.Context {
	t.Helper()
	ctx := browse(t)
	name := filepath.Join(t.TempDir(), "page.html")
	f, err := os.Create(name)
	must(t, err)
	must(t, leasepage.Write(f, nil))
	must(t, f.Close())
	must(t, chromedp.Run(ctx, chromedp.Navigate("file://"+name)))
	return ctx
}

// counting has a picture of three members at 50 ms, and what is counted there.
const counting = `((heard, promises, leases, learner) => {
	const lane = (id) => ({ id, name: "n" + id, heard: heard.includes(id) ? [{ from: 0, to: 100 }] : [], holds: [], renewals: [], reads: [], flags: [], learner: learner === id,
		leases: leases.filter((l) => l.by === id).map((l) => ({ term: 2, from: 0, known: 1, usable: 80, end: 90, reads: 79, margin: 10, before: 0, after: 0, ...l })),
		promises: promises.filter((p) => p.by === id).map((p) => ({ to: p.to, term: 2, from: 0, end: 90 })) });
	accept({ full: true, from: 0, to: 100, lanes: ["1", "2", "3"].map(lane) });
	const v = validAt(50);
	return v.least + "-" + v.most;
})`

// The number of valid leases is a range if a member that is not heard may hold one.
func TestLeasePageCountsWhatItCannotKnow(t *testing.T) {
	ctx := blankPage(t)
	for _, tc := range []struct{ name, args, want string }{
		{"all are heard, and one holds it", `(["1","2","3"], [{by:"2",to:"1"}], [{by:"1"}])`, "1-1"},
		{"all are heard, and none holds it", `(["1","2","3"], [], [])`, "0-0"},
		{"the leader is not heard, and another voter has promised", `(["2","3"], [{by:"2",to:"1"}], [])`, "0-1"},
		{"one is not heard, and a quorum has promised it nothing", `(["2","3"], [], [])`, "0-0"},
		{"only one is heard", `(["3"], [], [])`, "0-1"},
		{"none is heard", `([], [], [])`, "0-1"},
		{"only the holder is heard", `(["1"], [], [{by:"1"}])`, "1-2"},
		{"it is not known when it was held", `(["1","2","3"], [], [{by:"1",loose:true}])`, "0-1"},
		{"a lease is asked for", `(["1","2","3"], [], [{by:"1",known:60}])`, "0-0"},
		{"a lease is in its margin", `(["1","2","3"], [], [{by:"1",usable:40}])`, "0-0"},
		{"it may begin later, as far as clocks tell", `(["1","2","3"], [], [{by:"1",before:60}])`, "0-1"},
		{"it may have begun, as far as clocks tell", `(["1","2","3"], [], [{by:"1",known:60,before:20}])`, "0-1"},
		{"it may have ended, as far as clocks tell", `(["1","2","3"], [], [{by:"1",usable:60,after:20}])`, "0-1"},
		{"two in a row, in an unknown order", `(["1","2","3"], [], [{by:"1",usable:49,after:20},{by:"2",term:3,known:49,before:20}])`, "0-2"},
		{"two in a row, handed over", `(["1","2","3"], [], [{by:"1",usable:49,after:20},{by:"2",term:3,known:49,before:20,released:true}])`, "0-1"},
		{"a learner is not heard, and voters have promised to it", `(["1","2"], [{by:"1",to:"3"},{by:"2",to:"3"}], [], "3")`, "0-0"},
		{"a learner is not heard", `(["1","2"], [{by:"2",to:"1"}], [{by:"1"}], "3")`, "1-1"},
	} {
		var got string
		must(t, chromedp.Run(ctx, chromedp.Evaluate(counting+tc.args, &got)))
		if got != tc.want {
			t.Errorf("%s: %s leases are valid, want %s", tc.name, got, tc.want)
		}
	}
	// A window of no width has no axis, and is no reason to draw one for ever.
	must(t, chromedp.Run(ctx, chromedp.Evaluate(`canvas.style.width = "0px"; draw(); canvas.style.width = ""; draw()`, nil)))
	must(t, chromedp.Cancel(ctx))
}
