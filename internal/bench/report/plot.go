package report

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Plot is a picture of a part of the report.
type Plot struct {
	Title string
	SVG   string
}

const (
	plotWidth  = 8 * vg.Inch
	plotHeight = 4 * vg.Inch
)

// Plots draws what there is.
func (r *Report) Plots() ([]Plot, error) {
	var plots []Plot
	var firstErr error
	add := func(title string, p *plot.Plot, height vg.Length) {
		if p == nil {
			return
		}
		svg, err := render(p, height)
		if err != nil && firstErr == nil {
			firstErr = fmt.Errorf("plot %q: %w", title, err)
		}
		plots = append(plots, Plot{title, svg})
	}
	for _, clients := range r.valuesOf(Cluster, "clients") {
		title := "Throughput against the peers' round trip, " + clients + " clients"
		add(title, r.throughputPlot(clients), plotHeight)
	}
	for _, layer := range Layers[1:] {
		all := r.Comparisons(layer)
		for i := range all {
			if c := &all[i]; worthPlotting(c) {
				add("Latency, layer "+layer+": "+c.Group.String()+" "+c.Op, latencyPlot(c), plotHeight)
			}
		}
	}
	for _, p := range r.timelines() {
		add(p.title, p.plot, p.height)
	}
	return plots, firstErr
}

// worthPlotting keeps the page short: one plot for each condition of the
// greatest interest, the rest is in the tables.
func worthPlotting(c *Comparison) bool {
	if len(c.Rows) < 2 {
		return false
	}
	is := func(key string, values ...string) bool {
		v := c.Group.Value(key)
		return v == "" || slices.Contains(values, v)
	}
	switch c.Layer {
	default:
		return is("rtt", "0s", "1ms") && is("clients", "64", "1")
	}
}

var svgSize = regexp.MustCompile(`<svg width="[^"]*" height="[^"]*"`)

func render(p *plot.Plot, height vg.Length) (string, error) {
	canvas := vgsvg.New(plotWidth, height)
	p.Draw(draw.New(canvas))
	buf := &bytes.Buffer{}
	if _, err := canvas.WriteTo(buf); err != nil {
		return "", err
	}
	// The page sets the size, and XML headers have no place in HTML.
	svg := buf.String()
	if i := bytes.Index(buf.Bytes(), []byte("<svg")); i > 0 {
		svg = svg[i:]
	}
	return svgSize.ReplaceAllString(svg, "<svg"), nil
}

func (r *Report) valuesOf(layer, key string) (values []string) {
	for i := range r.Measurements {
		m := &r.Measurements[i]
		if v := m.Group.Value(key); m.Layer == layer && v != "" && !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}

// throughputPlot has the round trips on one axis and a line per arm.
func (r *Report) throughputPlot(clients string) *plot.Plot {
	lines := make(map[string]plotter.XYs)
	var arms, ticks []string
	for _, c := range r.Comparisons(Cluster) {
		rtt := c.Group.Value("rtt")
		if c.Group.Value("clients") != clients || c.Op != "read" || rtt == "" || c.Group.Value("loop") != "closed" || c.Group.Value("writes") != "0%" {
			continue
		}
		x := slices.Index(ticks, rtt)
		if x < 0 {
			x = len(ticks)
			ticks = append(ticks, rtt)
		}
		for i := range c.Rows {
			row := &c.Rows[i]
			if lines[row.Arm] == nil {
				arms = append(arms, row.Arm)
			}
			if row.PerSecond.Median > 0 {
				lines[row.Arm] = append(lines[row.Arm], plotter.XY{X: float64(x), Y: row.PerSecond.Median})
			}
		}
	}
	if len(ticks) < 2 {
		return nil
	}
	p := logPlot("round trip between peers", "reads per second", rate)
	p.X.Tick.Marker = named(ticks)
	return withLines(p, arms, lines)
}

// latencyPlot has percentiles on one axis, so spaced that each nine is as wide as
// the one before, and a line per arm.
func latencyPlot(c *Comparison) *plot.Plot {
	var ticks []string
	lines := make(map[string]plotter.XYs)
	var arms []string
	for x, q := range Quantiles {
		ticks = append(ticks, percentile(q))
		for i := range c.Rows {
			row := &c.Rows[i]
			if v := row.Quantiles[q].Median; v > 0 {
				lines[row.Arm] = append(lines[row.Arm], plotter.XY{X: float64(x), Y: v})
			}
		}
	}
	for i := range c.Rows {
		arms = append(arms, c.Rows[i].Arm)
	}
	p := logPlot("percentile", "latency", duration)
	p.X.Tick.Marker = named(ticks)
	return withLines(p, arms, lines)
}

func logPlot(x, y string, format func(float64) string) *plot.Plot {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.Y.Scale = plot.LogScale{}
	p.Y.Tick.Marker = decades(format)
	p.Legend.Top, p.Legend.Left = true, false
	p.Legend.XOffs = vg.Points(-4)
	p.Add(plotter.NewGrid())
	return p
}

// withLines adds a line per arm. It returns nil if there is nothing to draw: a
// logarithmic axis has no place for that.
func withLines(p *plot.Plot, arms []string, lines map[string]plotter.XYs) *plot.Plot {
	least, greatest := math.Inf(1), math.Inf(-1)
	for i, arm := range arms {
		if len(lines[arm]) == 0 {
			continue
		}
		line, points, err := plotter.NewLinePoints(lines[arm])
		if err != nil {
			continue // a value that is no number
		}
		line.Color, points.Color = plotutil.Color(i), plotutil.Color(i)
		line.Width = vg.Points(1.5)
		points.Shape = plotutil.Shape(i)
		p.Add(line, points)
		p.Legend.Add(arm, line, points)
		for _, xy := range lines[arm] {
			least, greatest = min(least, xy.Y), max(greatest, xy.Y)
		}
	}
	if least > greatest {
		return nil
	}
	// Whole decades, and one more for the legend.
	p.Y.Min = math.Pow(10, math.Floor(math.Log10(least)))
	p.Y.Max = math.Pow(10, math.Ceil(math.Log10(greatest)+1))
	return p
}

// named labels 0, 1, 2, … with names.
func named(names []string) plot.Ticker {
	var ticks plot.ConstantTicks
	for i, n := range names {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: n})
	}
	return ticks
}

// decades labels powers of ten.
type decades func(float64) string

// Ticks implements plot.Ticker.
func (d decades) Ticks(least, greatest float64) []plot.Tick {
	var ticks []plot.Tick
	for v := math.Pow(10, math.Floor(math.Log10(least))); v <= greatest*1.01; v *= 10 {
		ticks = append(ticks, plot.Tick{Value: v, Label: d(v)})
	}
	return ticks
}
