package cli

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
)

// levels has two of etcd's that are beyond ours: nothing is logged there.
var levels = map[string]slog.Level{
	"debug": slog.LevelDebug,
	"info":  slog.LevelInfo,
	"warn":  slog.LevelWarn,
	"error": slog.LevelError,
	"panic": slog.LevelError + 4,
	"fatal": slog.LevelError + 8,
}

// newLogger returns a logger as configured, and what closes its files.
func newLogger(sys *System, cfg settings.Log) (*slog.Logger, func(), error) {
	var files []io.Closer
	closeAll := func() {
		for _, f := range files {
			_ = f.Close() // there is nowhere left to say so
		}
	}
	var outputs []io.Writer
	for _, name := range cfg.Outputs {
		switch name {
		case "default", "stderr":
			outputs = append(outputs, sys.Stderr)
		case "stdout":
			outputs = append(outputs, sys.Stdout)
		default:
			f, err := settings.OpenOutput(name)
			if err != nil {
				closeAll()
				return nil, nil, err
			}
			files, outputs = append(files, f), append(outputs, f)
		}
	}
	if len(outputs) == 0 {
		outputs = []io.Writer{sys.Stderr}
	}
	options := &slog.HandlerOptions{Level: levels[cfg.Level], ReplaceAttr: readable}
	w := io.MultiWriter(outputs...)
	var h slog.Handler = slog.NewJSONHandler(w, options)
	if cfg.Format != "json" {
		h = slog.NewTextHandler(w, options)
	}
	return slog.New(h), closeAll, nil
}

// loggedBytes is the most of one text that a line has. Longer: whoever may say what
// is logged, such as the name of a member, fills disks with it.
const loggedBytes = 16 << 10

// readable writes durations as people do, since JSON would have nanoseconds, and of
// a text what prints, as both formats quote only a part of what does not. Messages, errors
// and advice have flags in the place of fields; other texts are names and paths.
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
