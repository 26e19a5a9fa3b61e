package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/cheggaaa/pb/v3"
	"golang.org/x/term"

	"github.com/leaderlease/go/internal/bench/suite"
)

// newProgress returns a bar if w is a terminal, and lines otherwise.
func newProgress(w io.Writer) suite.Progress {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &bar{to: f}
	}
	return &lines{to: w}
}

// bar shows the share of the plan that is behind, what is under way, and the
// time left.
type bar struct {
	to  *os.File
	bar *pb.ProgressBar
}

const barTemplate = `{{bar . "[" "=" ">" " " "]"}} {{percent .}} {{rtime . "%s left"}} {{string . "step"}}`

// Begin implements suite.Progress.
func (b *bar) Begin(total time.Duration) {
	b.bar = pb.ProgressBarTemplate(barTemplate).New(int(total.Milliseconds()))
	b.bar.SetWriter(b.to)
	b.bar.Start()
}

// Step implements suite.Progress.
func (b *bar) Step(name string, behind time.Duration) {
	b.bar.Set("step", name)
	b.bar.SetCurrent(behind.Milliseconds())
}

// End implements suite.Progress.
func (b *bar) End() {
	b.bar.SetCurrent(b.bar.Total())
	b.bar.Finish()
}

// lines prints one for each part of the plan.
type lines struct {
	to    io.Writer
	total time.Duration
	part  string
}

// Begin implements suite.Progress.
func (l *lines) Begin(total time.Duration) {
	l.total = total
	l.print("plan: about %v", total.Round(time.Second))
}

// Step implements suite.Progress.
func (l *lines) Step(name string, behind time.Duration) {
	part, _, _ := strings.Cut(name, ",")
	if part != l.part {
		l.part = part
		l.print("%3.0f%% %s", 100*float64(behind)/float64(max(l.total, 1)), part)
	}
}

// End implements suite.Progress.
func (l *lines) End() {}

func (l *lines) print(format string, args ...any) {
	_, _ = fmt.Fprintf(l.to, format+"\n", args...) // progress is not worth failing for
}
