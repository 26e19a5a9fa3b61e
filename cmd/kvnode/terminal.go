package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cheggaaa/pb/v3"
	"golang.org/x/term"

	"github.com/leaderlease/go/raftwal"
)

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// bar shows the progress of reading a log on a terminal.
type bar struct {
	bar    *pb.ProgressBar // nil if stderr is no terminal
	before map[string]int64
}

// newBar returns a bar for the size of all segments.
func newBar(sys *System, dir string) *bar {
	if !isTerminal(sys.Stderr) {
		return &bar{}
	}
	b := &bar{before: make(map[string]int64)}
	var total int64
	// Names sort in the order of reading.
	files, _ := os.ReadDir(dir) // an error is reported by the reader of the log
	for _, f := range files {
		info, err := f.Info()
		if err != nil || !strings.HasSuffix(f.Name(), ".wal") {
			continue
		}
		b.before[f.Name()] = total
		total += info.Size()
	}
	b.bar = pb.New64(total).SetTemplate(pb.Full).Set(pb.Bytes, true).Set("prefix", filepath.Base(dir)+" ").SetWriter(sys.Stderr).Start()
	return b
}

// at moves the bar to a record.
func (b *bar) at(r *raftwal.Record) {
	if b.bar != nil {
		b.bar.SetCurrent(b.before[r.File] + r.Offset)
	}
}

func (b *bar) finish() {
	if b.bar != nil {
		b.bar.SetCurrent(b.bar.Total())
		b.bar.Finish()
	}
}
