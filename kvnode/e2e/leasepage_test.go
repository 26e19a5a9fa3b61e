package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/leaderlease/go/internal/testcluster"
)

// browse returns a context of a page in a headless browser of its own.
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

// state is what the page shows.
const state = `JSON.stringify({ count: document.getElementById("count").textContent, unknown: document.getElementById("unknown").textContent,
	leases: model.lanes.map((l) => [l.name, l.leases.map((s) => [s.term, s.from, s.known, s.usable, s.end])]) })`

// poll waits until an expression of the page is true, and says what the page shows if it is not.
// chromedp's own waits for a frame, and a browser that is busy may draw none.
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

// margin counts the colours in the middle of the margin of the oldest lease: its hatch has at
// least two.
const margin = `(() => {
	const i = model.lanes.findIndex((l) => l.leases.some((s) => s.term === first)), l = model.lanes[i].leases.find((s) => s.term === first);
	look(l.usable - 100, 400, l.usable);
	draw();
	const r = devicePixelRatio, at = pen.getImageData((x((l.usable + l.end) / 2) - 20) * r, (rowTop(i) + 42) * r, 40 * r, 1).data;
	return new Set(Array.from({ length: at.length / 4 }, (_, p) => at.slice(4 * p, 4 * p + 4).join())).size > 1;
})()`

// apart says whether the first leader's lease ends before its successor's begins.
const apart = `(() => {
	const all = model.lanes.flatMap((l) => l.leases), ends = Math.max(...all.filter((s) => s.term === first).map((s) => s.end));
	const next = all.filter((s) => s.term > first);
	return next.length > 0 && next.every((s) => ends <= s.from);
})()`

// A browser shows which member holds the lease. Once that member is paused its lease ends, with a
// margin, before its successor's begins. Keys stop time, zoom and move; wide or narrow,
// light or dark, nothing is cut off.
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
