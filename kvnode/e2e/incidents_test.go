package e2e

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var pictures = flag.Bool("pictures", false, "take the pictures of docs/incidents anew")

const incidents = "../../docs/incidents"

// inOrder checks that each lease ends before the next one begins, and that there are at least two of
// them. The members' clocks are independent, and the page marks unknown times.
const inOrder = `(() => {
	const all = model.lanes.flatMap((l) => l.leases).sort((a, b) => a.term - b.term || a.from - b.from);
	const terms = new Set(all.map((l) => l.term));
	return terms.size > 1 && model.proved && all.every((l, i) => all.slice(i + 1).every((n) => n.term === l.term || l.usable - l.after <= n.known + n.before));
})()`

// longer makes the first lease last beyond the next.
const longer = `model.lanes.flatMap((l) => l.leases).sort((a, b) => a.term - b.term)[0].usable += 60e3; true`

// flagged is a function that says whether a flag of that kind is there.
const flagged = `globalThis.flagged = (kind) => model.lanes.some((l) => l.flags.some((f) => f.kind === kind)); true`

// seen is what each incident shows.
var seen = map[string][]string{
	"paused-leader": {inOrder, `flagged("paused")`, `model.lanes.some((l) => l.heard.length > 1)`},
	"partition":     {inOrder, `flagged("lost") || flagged("down")`, `!flagged("paused")`},
	"transfer":      {inOrder, `flagged("transfer")`, `model.lanes.some((l) => l.leases.some((s) => s.released))`},
	"restart-hold":  {inOrder, `flagged("start")`, `model.lanes.some((l) => l.holds.some((h) => h[1] - h[0] > 100))`},
	"found-bug":     {`flagged("voters")`, `model.lanes.some((l) => l.leases.length > 0)`, `model.proved`},
}

// Each incident of the documents opens in a browser, as one file that loads nothing else, and
// shows its subject.
func TestIncidentsInABrowser(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(incidents, "*.trace"))
	must(t, err)
	if len(files) != len(seen) {
		t.Errorf("there are the incidents %q, want %d", files, len(seen))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".trace")
		t.Run(name, func(t *testing.T) {
			at := pageFile(t, file)
			ctx := browse(t)
			must(t, chromedp.Run(ctx, chromedp.Navigate(at), chromedp.EmulateViewport(1000, 760), chromedp.Evaluate(flagged, nil)))
			for _, what := range append(seen[name], `document.getElementById("mode").textContent === "recorded"`, `document.getElementById("verdict").textContent.endsWith("allowed")`) {
				must(t, chromedp.Run(ctx, poll(what)))
			}
			var png []byte
			must(t, chromedp.Run(ctx, chromedp.CaptureScreenshot(&png)))
			to := filepath.Join(t.ArtifactDir(), name+".png")
			if *pictures {
				to = filepath.Join(incidents, name+".png")
			}
			must(t, os.WriteFile(to, png, 0o600))
			var still bool
			if must(t, chromedp.Run(ctx, chromedp.Evaluate(longer, nil), chromedp.Evaluate(inOrder, &still))); still {
				t.Error("a first lease that lasts for a minute longer is in order, too")
			}
			must(t, chromedp.Cancel(ctx))
		})
	}
}

// pageFile returns the address of what `kvnode trace page` makes of a file.
func pageFile(t *testing.T, file string) string {
	t.Helper()
	html, err := exec.Command(onlyKvnode(t).Path, "trace", "page", file).Output()
	must(t, err)
	page := filepath.Join(t.TempDir(), "page.html")
	must(t, os.WriteFile(page, html, 0o600))
	return "file://" + page
}

// box is where the parts of the page are.
const box = `JSON.stringify(["count", "holder", "lanes", "story"].map((id) => { const b = document.getElementById(id).getBoundingClientRect(); return [b.top + scrollY, b.height]; }))`

// Each key does what its button says, the pointer shows the numbers, and nothing moves meanwhile, in
// a wide window and in a narrow one.
func TestLeasePageKeysAndNumbers(t *testing.T) {
	at := pageFile(t, filepath.Join(incidents, "paused-leader.trace"))
	ctx := browse(t)
	must(t, chromedp.Run(ctx, chromedp.Navigate(at)))
	for _, width := range []int64{1000, 400} {
		var before, after, tip string
		must(t, chromedp.Run(ctx, chromedp.EmulateViewport(width, 760), chromedp.Evaluate(`whole(); pause(true)`, nil), chromedp.Evaluate(box, &before)))
		for _, key := range []struct{ name, key, does string }{
			{"plus", "+", `view.span < was.span`},
			{"minus", "-", `view.span > was.span`},
			{"equals", "=", `view.span < was.span`},
			{"right", kb.ArrowRight, `view.from > was.from`},
			{"left", kb.ArrowLeft, `view.from < was.from`},
			{"space", " ", `!paused`},
			{"space again", " ", `paused`},
			{"nought", "0", `view.from <= model.from && view.from + view.span >= model.to`},
		} {
			var is bool
			must(t, chromedp.Run(ctx, chromedp.Evaluate(`globalThis.was = { ...view }; true`, nil), chromedp.KeyEvent(key.key), chromedp.Evaluate(key.does, &is)))
			if !is {
				t.Errorf("%d pixels: it is not so that %s does %s", width, key.name, key.does)
			}
		}
		must(t, chromedp.Run(ctx,
			chromedp.Evaluate(`(() => {
				const i = model.lanes.findIndex((l) => l.leases.length), l = model.lanes[i].leases[0], at = canvas.getBoundingClientRect();
				canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: at.left + x((l.known + l.usable) / 2), clientY: at.top + rowTop(i) + 40, bubbles: true }));
				return true;
			})()`, nil),
			chromedp.Evaluate(`document.getElementById("tip").hidden ? "" : document.getElementById("tip").textContent`, &tip),
			poll(`document.getElementById("when").textContent === "at the pointer"`),
			chromedp.Evaluate(box, &after)))
		if !regexp.MustCompile(`lease of term \d+, reads for [\d.]+ m?s more.*ends [\d.]+ m?s later.*renewed by a round sent`).MatchString(tip) {
			t.Errorf("%d pixels: the pointer is told %q, want the numbers of the lease", width, tip)
		}
		if before != after {
			t.Errorf("%d pixels: parts of the page were at %s, and are at %s", width, before, after)
		}
	}
	must(t, chromedp.Cancel(ctx))
}
