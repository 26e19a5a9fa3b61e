package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/leaderlease/go/internal/testcluster"
	"github.com/leaderlease/go/leaderlease/leasepage"
)

// browse returns the context of a page in a new headless browser.
func browse(t *testing.T) context.Context {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium on this machine, by which the page is looked at")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(browser), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	ctx, stop := chromedp.NewExecAllocator(deadline(t), options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	return ctx
}

// state returns the visible state of the page.
const state = `JSON.stringify({ count: document.getElementById("count").textContent, unknown: document.getElementById("unknown").textContent,
	leases: model.lanes.map((l) => [l.name, l.leases.map((s) => [s.term, s.from, s.known, s.usable, s.end])]) })`

// poll waits until an expression of the page is true, and reports the state of the page if it stays
// false. chromedp's own polling waits for a frame, which a busy browser may not draw.
func poll(what string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		for begun := time.Now(); time.Since(begun) < patience/3; time.Sleep(50 * time.Millisecond) {
			var is bool
			if err := chromedp.Evaluate(what, &is).Do(ctx); err != nil || is {
				return err
			}
		}
		var shown string
		err := chromedp.Evaluate(state, &shown).Do(ctx)
		return errors.Join(err, fmt.Errorf("it is not so that %s: the page has %s", what, shown))
	})
}

func picture(t *testing.T, name string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		var png []byte
		if err := chromedp.FullScreenshot(&png, 100).Do(ctx); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(t.ArtifactDir(), name+".png"), png, 0o600)
	})
}

// margin counts the colours in the middle of the margin of the oldest lease, which is hatched with at
// least two.
const margin = `(() => {
	const i = model.lanes.findIndex((l) => l.leases.some((s) => s.term === first)), l = model.lanes[i].leases.find((s) => s.term === first);
	look(l.usable - 100, 400, l.usable);
	draw();
	const r = devicePixelRatio, at = pen.getImageData((x((l.usable + l.end) / 2) - 20) * r, (rowTop(i) + 42) * r, 40 * r, 1).data;
	return new Set(Array.from({ length: at.length / 4 }, (_, p) => at.slice(4 * p, 4 * p + 4).join())).size > 1;
})()`

// apart reports whether the first leader's lease ends before its successor's begins.
const apart = `(() => {
	const all = model.lanes.flatMap((l) => l.leases), ends = Math.max(...all.filter((s) => s.term === first).map((s) => s.end));
	const next = all.filter((s) => s.term > first);
	return next.length > 0 && next.every((s) => ends <= s.from);
})()`

// A browser shows which member holds the lease. When that member is paused, its lease ends, with a
// margin, before its successor's begins. Keys stop time, zoom and move. No text is clipped in a wide
// or narrow window, with light or dark colors.
func TestLeasePageInABrowser(t *testing.T) {
	c := startCluster(t, onlyKvnode(t), "--election-timeout=1000")
	ctx := browse(t)
	old, err := c.Leader(deadline(t))
	must(t, err)
	var watched *testcluster.Member
	for _, m := range c.Members() {
		if m != old {
			watched = m
		}
	}
	must(t, chromedp.Run(ctx,
		chromedp.EmulateViewport(1000, 800), chromedp.Navigate(fmt.Sprintf("http://%s/lease", watched.Endpoint)),
		poll(`model.lanes.length === 3 && document.getElementById("count").textContent === "1"`),
		chromedp.Evaluate(`globalThis.first = Math.max(...model.lanes.flatMap((l) => l.leases).map((s) => s.term)); true`, nil),
		picture(t, "held")))
	readSome(t, c)
	must(t, chromedp.Run(ctx, poll(`model.lanes.some((l) => l.reads.some((r) => r[1] + r[4] > 0))`), picture(t, "reads")))
	must(t, old.Pause())
	t.Cleanup(func() { _ = old.Resume() }) // which the end of the cluster needs not
	must(t, chromedp.Run(ctx,
		poll(apart),
		poll(`document.getElementById("count").textContent === "1" && document.getElementById("unknown").textContent !== ""`),
		picture(t, "paused")))
	must(t, old.Resume())
	var hatched, stops, nearer, moved, fits, fitsNarrow bool
	var light, dark string
	back := chromedp.Evaluate(`getComputedStyle(document.body).backgroundColor`, &light)
	must(t, chromedp.Run(ctx,
		poll(`model.lanes.flatMap((l) => l.flags).some((f) => f.kind === "lost")`),
		chromedp.KeyEvent(" "), chromedp.Evaluate(`paused`, &stops),
		chromedp.Evaluate(margin, &hatched),
		chromedp.KeyEvent("+"), chromedp.Evaluate(`view.span < 400`, &nearer),
		chromedp.Evaluate(`globalThis.before = view.from; true`, nil), chromedp.KeyEvent(kb.ArrowRight), chromedp.Evaluate(`view.from > before`, &moved),
		chromedp.KeyEvent("0"), chromedp.Evaluate(`document.documentElement.scrollWidth <= 1000`, &fits),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "light"}}), back,
		picture(t, "light"),
		chromedp.EmulateViewport(400, 800),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}),
		chromedp.Evaluate(`document.documentElement.scrollWidth <= 400`, &fitsNarrow),
		chromedp.Evaluate(`getComputedStyle(document.body).backgroundColor`, &dark),
		picture(t, "dark")))
	for what, is := range map[string]bool{
		"the margin is hatched": hatched, "space stops time": stops, "+ zooms": nearer, "an arrow moves": moved,
		"1000 pixels are enough": fits, "400 pixels are enough": fitsNarrow, "dark is not light": light != dark,
	} {
		if !is {
			t.Errorf("it is not so that %s", what)
		}
	}
	must(t, chromedp.Cancel(ctx))
}

func readSome(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	cl, err := c.Client()
	must(t, err)
	defer cl.Close()
	for range 30 {
		_, err := cl.Get(deadline(t), "k")
		must(t, err)
	}
}

// says returns the page's text for one instant of a picture of members "1", "2" and so on.
const says = `((t, proved, lanes) => {
	accept({ full: true, from: 0, to: 100, proved, lanes: Object.entries(lanes).map(([id, l]) => ({ id, name: "n" + id,
		heard: [{ from: 0, to: 100 }], holds: [], renewals: [], reads: [], flags: [], promises: [], leases: [], ...l })) });
	tell(t);
	const text = (id) => document.getElementById(id).textContent;
	return [text("count") + " " + text("what"), text("holder"), text("unknown")].join("; ");
})`

// The page describes the lease of a sole voter, and what is unknown in a partition.
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

// blankPage opens a page without data.
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

// counting draws three members at 50 ms and returns the counts of the page.
const counting = `((heard, promises, leases, learner) => {
	const lane = (id) => ({ id, name: "n" + id, heard: heard.includes(id) ? [{ from: 0, to: 100 }] : [], holds: [], renewals: [], reads: [], flags: [], learner: learner === id,
		leases: leases.filter((l) => l.by === id).map((l) => ({ term: 2, from: 0, known: 1, usable: 80, end: 90, reads: 79, margin: 10, before: 0, after: 0, ...l })),
		promises: promises.filter((p) => p.by === id).map((p) => ({ to: p.to, term: 2, from: 0, end: 90 })) });
	accept({ full: true, from: 0, to: 100, lanes: ["1", "2", "3"].map(lane) });
	const v = validAt(50);
	return v.least + "-" + v.most;
})`

// The number of valid leases is a range if an unreachable member may hold one.
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
	// A window of width 0 has no axis, and drawing it must end.
	must(t, chromedp.Run(ctx, chromedp.Evaluate(`canvas.style.width = "0px"; draw(); canvas.style.width = ""; draw()`, nil)))
	must(t, chromedp.Cancel(ctx))
}

// measureClock keeps in offset how far the member's clock is ahead of the browser's. Each
// picture carries the member's clock, and arrives later than that: the picture that was the
// fastest gives the best offset, even if the machine is busy.
const measureClock = `globalThis.offset = -Infinity; globalThis.pictures = 0; globalThis.newest = null;
setInterval(() => {
	if (clock === newest || clock.at === 0) return;
	newest = clock;
	pictures++;
	offset = Math.max(offset, clock.now - clock.at);
}, 10); true`

// sideBySide asks the member for its status, waits until the page has the events of that
// time, stops the page at the instant of the request, and returns what both say.
//
// The status was true at some instant between the request and its answer, and the offset is a
// little too small: slack allows for that. A sample is usable if no renewal falls into this
// time. Then page and status may differ by at most allowed. Renewals are a heartbeat interval
// apart, so a page that counts one more or one less differs by more than that: late is what
// a page says that counts all renewals that it knows.
const sideBySide = `(async () => {
	const slack = 60, now = () => offset + performance.now(), pause = (ms) => new Promise((done) => setTimeout(done, ms));
	await pause(200 * Math.random()); // pictures and renewals both come at fixed intervals
	const asked = now(), status = await (await fetch("status")).json(), took = now() - asked, last = asked + took + slack;
	while (model.to < asked + 500) await pause(20);
	look(asked - 1000, 2000, asked);
	tell(view.head);
	const lane = model.lanes.find((l) => l.name === status.name), lease = spanAt(lane.leases, asked);
	const words = $("holder").textContent.match(/reads for ([-\d.]+) (ms|s) more/);
	return {
		usable: status.lease.state === "valid" && took < 40 && Boolean(lease) && renewalAt(lane, asked)?.sent === renewalAt(lane, last)?.sent,
		shown: words ? words[1] * (words[2] === "s" ? 1000 : 1) : -1, late: lease ? lease.usable - asked : -1,
		status: status.lease.remaining_ms, allowed: took + slack + 1,
		heading: $("count").textContent + " " + document.querySelector("h1").textContent, holder: $("holder").textContent,
	};
})()`

// stopped returns the text of a stopped page, and its text at the time of a renewal.
const stopped = `(async () => {
	const before = $("holder").textContent, known = model.to;
	while (model.to < known + 1000) await new Promise((done) => setTimeout(done, 20));
	tell(view.head);
	return [before, $("holder").textContent];
})()`

func await(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// The page and the status of the leader agree how long the lease allows reads, in each of five
// samples. What a stopped page says does not change when the lease is renewed.
func TestLeasePageAgreesWithStatus(t *testing.T) {
	c := startCluster(t, onlyKvnode(t), "--heartbeat-interval=200", "--election-timeout=3000")
	ctx := browse(t)
	leader, err := c.Leader(deadline(t))
	must(t, err)
	must(t, chromedp.Run(ctx, chromedp.Navigate(fmt.Sprintf("http://%s/lease", leader.Endpoint)),
		poll(`document.getElementById("count").textContent === "1"`),
		chromedp.Evaluate(measureClock, nil), poll(`pictures >= 10`)))
	usable := 0
	for begun := time.Now(); usable < 5; {
		var got struct {
			Usable                       bool
			Shown, Late, Status, Allowed float64
			Heading, Holder              string
		}
		must(t, chromedp.Run(ctx, chromedp.Evaluate(sideBySide, &got, await)))
		switch {
		case got.Usable:
			usable++
		case time.Since(begun) > patience/2 && usable == 0:
			t.Fatalf("no status was answered between two renewals in %v; the last one: %+v", patience/2, got)
		case time.Since(begun) > patience/2:
			usable = 5 // the machine is busy: fewer samples have to do
			continue
		default:
			continue
		}
		if math.Abs(got.Shown-got.Status) > got.Allowed {
			t.Errorf("the page says %q (%v ms) and the status says %v ms; they may differ by %v ms", got.Holder, got.Shown, got.Status, got.Allowed)
		}
		if math.Abs(got.Late-got.Status) <= got.Allowed {
			t.Errorf("a page that counts later renewals says %v ms and the status %v ms: this sample (%+v) finds no wrong page", got.Late, got.Status, got)
		}
		if want := "1 valid leader lease at"; !strings.HasPrefix(got.Heading, want) {
			t.Errorf("the heading is %q, want %q and an instant", got.Heading, want)
		}
		t.Logf("%+v", got)
	}
	var said [2]string
	must(t, chromedp.Run(ctx, chromedp.Evaluate(stopped, &said, await)))
	if said[0] != said[1] {
		t.Errorf("the stopped page says %q, and %q when the lease was renewed", said[0], said[1])
	}
	must(t, chromedp.Run(ctx, chromedp.Evaluate(`pause(false)`, nil),
		poll(`document.querySelector("h1").textContent === "valid leader lease about 600 ms ago"`)))
	must(t, chromedp.Cancel(ctx))
}

// The lease of a sole voter is valid in the status and on the page, also when its last
// event is older than the period that a picture covers.
func TestLeasePageOfASoleVoterAgreesWithStatus(t *testing.T) {
	c := startSize(t, onlyKvnode(t), 1)
	ctx := browse(t)
	leader, err := c.Leader(deadline(t))
	must(t, err)
	const valid = `document.getElementById("count").textContent === "1" && document.getElementById("holder").textContent.endsWith("reads without a limit, as the only voter")`
	must(t, chromedp.Run(ctx, chromedp.Navigate(fmt.Sprintf("http://%s/lease", leader.Endpoint)),
		chromedp.Evaluate(`globalThis.opened = performance.now(); true`, nil),
		poll(`performance.now() - opened > 8000 && `+valid)))
	var state string
	must(t, chromedp.Run(ctx, chromedp.Evaluate(`fetch("status").then((r) => r.json()).then((s) => s.lease.state)`, &state, await)))
	if state != "valid" {
		t.Errorf("the status says %q and the page says that the lease is valid", state)
	}
	must(t, chromedp.Cancel(ctx))
}
