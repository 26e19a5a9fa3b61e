package e2e

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

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

// stopped returns what a stopped page says, and what it says when the lease was renewed.
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

// The lease of a sole voter is valid for the status and for the page, also when its last
// event is older than the time that the page is told about with each picture.
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
