package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/leaderlease/go/kvnode/leasepage"
)

// counting has a picture of three members at 50 ms, and what is counted there.
const counting = `((heard, promises, leases, learner) => {
	const lane = (id) => ({ id, name: "n" + id, heard: heard.includes(id) ? [{ from: 0, to: 100 }] : [], holds: [], renewals: [], reads: [], flags: [], learner: learner === id,
		leases: leases.filter((l) => l.by === id).map((l) => ({ term: 2, from: 0, known: 1, usable: 80, end: 90, before: 0, after: 0, ...l })),
		promises: promises.filter((p) => p.by === id).map((p) => ({ to: p.to, term: 2, from: 0, end: 90 })) });
	accept({ full: true, from: 0, to: 100, lanes: ["1", "2", "3"].map(lane) });
	const v = validAt(50);
	return v.least + "-" + v.most;
})`

// The number of valid leases is a range wherever somebody who is not heard may hold one.
func TestLeasePageCountsWhatItCannotKnow(t *testing.T) {
	ctx := browse(t)
	name := filepath.Join(t.TempDir(), "page.html")
	f, err := os.Create(name)
	must(t, err)
	must(t, leasepage.Write(f, nil))
	must(t, f.Close())
	must(t, chromedp.Run(ctx, chromedp.Navigate("file://"+name)))
	for _, tc := range []struct{ name, args, want string }{
		{"all are heard, and one holds it", `(["1","2","3"], [{by:"2",to:"1"}], [{by:"1"}])`, "1-1"},
		{"all are heard, and nobody holds it", `(["1","2","3"], [], [])`, "0-0"},
		{"the leader is not heard, and who is has promised", `(["2","3"], [{by:"2",to:"1"}], [])`, "0-1"},
		{"one is not heard, and a quorum has promised it nothing", `(["2","3"], [], [])`, "0-0"},
		{"only one is heard", `(["3"], [], [])`, "0-1"},
		{"nobody is heard", `([], [], [])`, "0-1"},
		{"a holder is heard, and nobody else", `(["1"], [], [{by:"1"}])`, "1-2"},
		{"nobody knows when it was held", `(["1","2","3"], [], [{by:"1",loose:true}])`, "0-1"},
		{"a lease is asked for", `(["1","2","3"], [], [{by:"1",known:60}])`, "0-0"},
		{"a lease is in its margin", `(["1","2","3"], [], [{by:"1",usable:40}])`, "0-0"},
		{"it may begin later, as far as clocks tell", `(["1","2","3"], [], [{by:"1",before:60}])`, "0-1"},
		{"it may have begun, as far as clocks tell", `(["1","2","3"], [], [{by:"1",known:60,before:20}])`, "0-1"},
		{"it may have ended, as far as clocks tell", `(["1","2","3"], [], [{by:"1",usable:60,after:20}])`, "0-1"},
		{"two in a row, of which nobody knows the order", `(["1","2","3"], [], [{by:"1",usable:49,after:20},{by:"2",term:3,known:49,before:20}])`, "0-2"},
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
