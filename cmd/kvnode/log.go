package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
)

// levels are etcd's level names. Nothing is logged at the last two.
var levels = map[string]slog.Level{
	"debug": slog.LevelDebug,
	"info":  slog.LevelInfo,
	"warn":  slog.LevelWarn,
	"error": slog.LevelError,
	"panic": slog.LevelError + 4,
	"fatal": slog.LevelError + 8,
}

// logQueueBytes is the size of each output's queue. Lines beyond it are dropped.
const logQueueBytes = 1 << 20

// logFlushTime is how long the exit waits for blocked outputs.
const logFlushTime = time.Second

// processLog is the log of a process. A blocked output delays neither its callers nor the
// other outputs.
type processLog struct {
	*slog.Logger
	queues []*logQueue // one per output
	files  []io.Closer
}

// newLogger returns a logger as configured. The caller closes it.
func newLogger(sys *System, cfg settings.Log) (*processLog, error) {
	l := &processLog{}
	var all []io.Writer
	add := func(name string, output io.Writer) {
		q := newLogQueue(output, logQueueBytes, dropNotice(cfg, name))
		l.queues, all = append(l.queues, q), append(all, q)
	}
	for _, name := range cfg.Outputs {
		switch name {
		case "default", "stderr":
			add(name, sys.Stderr)
		case "stdout":
			add(name, sys.Stdout)
		default:
			f, err := settings.OpenOutput(name)
			if err != nil {
				l.close()
				return nil, err
			}
			l.files = append(l.files, f)
			add(name, f)
		}
	}
	if len(l.queues) == 0 {
		add("stderr", sys.Stderr)
	}
	l.Logger = slog.New(newHandler(cfg, io.MultiWriter(all...)))
	return l, nil
}

func newHandler(cfg settings.Log, w io.Writer) slog.Handler {
	options := &slog.HandlerOptions{Level: levels[cfg.Level], ReplaceAttr: readable}
	if cfg.Format == "json" {
		return slog.NewJSONHandler(w, options)
	}
	return slog.NewTextHandler(w, options)
}

// dropNotice returns the function that makes the line about dropped lines. The line is a warning, so a
// log at level error has none; kvnode_log_lines_dropped_total counts in any case.
func dropNotice(cfg settings.Log, output string) func(lines uint64) []byte {
	return func(lines uint64) []byte {
		var b bytes.Buffer
		slog.New(newHandler(cfg, &b)).Warn("log lines are missing here: the output was blocked or failed", "lines", lines, "output", output)
		return b.Bytes()
	}
}

// dropped returns the number of lines that did not reach an output.
func (l *processLog) dropped() (lines uint64) {
	for _, q := range l.queues {
		lines += q.Dropped()
	}
	return lines
}

// close writes the queued lines, for at most logFlushTime, and closes the files. It may be called
// more than once.
func (l *processLog) close() {
	var all sync.WaitGroup
	for _, q := range l.queues {
		all.Go(func() { q.Close(logFlushTime) })
	}
	all.Wait()
	for _, f := range l.files {
		_ = f.Close() // there is nowhere left to report it
	}
}

// loggedBytes is the maximum size of one text in a log line. Peers and clients choose some of these
// texts, such as a member's name, and could otherwise fill the disk.
const loggedBytes = 16 << 10

// readable prints durations like 1.5s, since JSON would have nanoseconds, and escapes unprintable
// text, which the formats quote only in part. In messages, errors and advice, names of fields become
// flags; other texts are names and paths.
func readable(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case time.Duration:
		a.Value = slog.StringValue(v.String())
	case string:
		v = logged(v)
		if a.Key == slog.MessageKey || a.Key == "advice" {
			v = settings.Spoken(v)
		}
		a.Value = slog.StringValue(v)
	case error:
		a.Value = slog.StringValue(settings.Spoken(logged(v.Error())))
	}
	return a
}

func logged(s string) string {
	if len(s) > loggedBytes {
		s = fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:loggedBytes], ""), len(s))
	}
	return printable(s)
}
