package report

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/leaderlease/go/internal/bench/load"
)

type timeline struct {
	title  string
	plot   *plot.Plot
	height vg.Length
}

// timelines has one plot for each layer and fault, with a lane for the reads and
// one for the writes of each arm, newest round.
func (r *Report) timelines() []timeline {
	var plots []timeline
	var keys []string
	cells := make(map[string][]*Failover)
	for _, o := range r.Outages() {
		key := fmt.Sprintf("Failover, layer %s: %s", o.Layer, o.Fault)
		if cells[key] == nil {
			keys = append(keys, key)
		}
		cells[key] = append(cells[key], o.last)
	}
	for _, key := range keys {
		lanes := 2 * len(cells[key])
		plots = append(plots, timeline{key, timelinePlot(cells[key]), vg.Length(lanes+2) * vg.Inch * 0.45})
	}
	return plots
}

var (
	doneColor   = color.RGBA{R: 0x2a, G: 0x7a, B: 0x4b, A: 0xff}
	failedColor = color.RGBA{R: 0xd0, G: 0x6a, B: 0x00, A: 0xff}
	staleColor  = color.RGBA{R: 0xc0, G: 0x00, B: 0x20, A: 0xff}
)

func timelinePlot(fs []*Failover) *plot.Plot {
	p := plot.New()
	p.X.Label.Text = fmt.Sprintf("seconds since the fault; per %v: done (green), failed (orange), stale (red)", fs[0].Bucket)
	var names plot.ConstantTicks
	lane := 2*len(fs) - 1
	for _, f := range fs {
		for _, part := range []struct {
			op     string
			counts []load.Count
		}{{"reads", f.Reads}, {"writes", f.Writes}} {
			addLane(p, f, part.counts, float64(lane))
			names = append(names, plot.Tick{Value: float64(lane), Label: f.System + " " + f.Arm + " " + part.op})
			lane--
		}
	}
	p.Y.Tick.Marker = names
	p.Y.Min, p.Y.Max = -0.2, float64(2*len(fs))
	begin, err := plotter.NewLine(plotter.XYs{{X: 0, Y: p.Y.Min}, {X: 0, Y: p.Y.Max}})
	if err == nil {
		begin.Dashes = []vg.Length{vg.Points(3), vg.Points(3)}
		p.Add(begin)
	}
	return p
}

// usual returns three times the median of what is done in a bucket in which
// anything is: a scale that a burst after an outage does not spoil.
func usual(counts []load.Count) int64 {
	var done []int64
	for _, c := range counts {
		if c.Done > 0 {
			done = append(done, c.Done)
		}
	}
	if len(done) == 0 {
		return 1
	}
	slices.Sort(done)
	return 3 * done[len(done)/2]
}

// addLane draws counts above the line y, the usual scale 0.8 high.
func addLane(p *plot.Plot, f *Failover, counts []load.Count, y float64) {
	most := usual(counts)
	draw := func(of func(load.Count) int64, c color.Color) {
		var points plotter.XYs
		var last int64 = -1
		var found bool
		for i, count := range counts {
			n := min(of(count), most)
			found = found || n > 0
			// Steps need a point only where they change.
			if n != last || i == len(counts)-1 {
				points = append(points, plotter.XY{X: f.Bucket.Seconds()*float64(i) - f.FaultAt.Seconds(), Y: y + 0.8*float64(n)/float64(most)})
				last = n
			}
		}
		line, err := plotter.NewLine(points)
		if err != nil || !found {
			return
		}
		line.Color, line.StepStyle = c, plotter.PostStep
		p.Add(line)
	}
	draw(func(c load.Count) int64 { return c.Done }, doneColor)
	draw(func(c load.Count) int64 { return c.Failed }, failedColor)
	draw(func(c load.Count) int64 { return c.Stale }, staleColor)
}
