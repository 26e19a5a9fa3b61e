package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
)

var defaultLog = settings.Log{Level: "info", Format: "json"}

func TestLogger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	var stdout, stderr buffer
	log, err := newLogger(&System{Stdout: &stdout, Stderr: &stderr},
		settings.Log{Level: "warn", Format: "json", Outputs: []string{"stdout", "default", path}})
	if err != nil {
		t.Fatal(err)
	}
	log.Info("hidden")
	log.Warn("shown, MaxTxnOps", "took", 1500*time.Millisecond, "member", "MaxTxnOps", "error", errors.New("open /MaxTxnOps/wal: needs MaxTxnOps"),
		"advice", "is joined with Config.Existing, after member add")
	log.close()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{"stdout": stdout.String(), "stderr": stderr.String(), "file": string(file)} {
		var line map[string]string
		if err := json.Unmarshal([]byte(got), &line); err != nil || line["msg"] != "shown, --max-txn-ops" || line["level"] != "WARN" || line["took"] != "1.5s" || line["time"] == "" {
			t.Errorf("%s has %q, want one line with time, level, msg and took=1.5s", name, got)
		}
		// A value that equals the name of a field is not changed.
		if line["member"] != "MaxTxnOps" || line["error"] != "open /MaxTxnOps/wal: needs --max-txn-ops" {
			t.Errorf("%s has member %q and error %q, want flags for fields only", name, line["member"], line["error"])
		}
		if line["advice"] != "is joined with --initial-cluster-state existing, after member add" {
			t.Errorf("%s has advice %q, want flags in it", name, line["advice"])
		}
	}
}

func TestLogFormats(t *testing.T) {
	for format, want := range map[string]string{"json": `"msg":"m"`, "text": "msg=m", "console": "msg=m"} {
		var stderr buffer
		log, err := newLogger(&System{Stderr: &stderr}, settings.Log{Level: "info", Format: format})
		if err != nil {
			t.Fatal(err)
		}
		log.Info("m")
		log.close()
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("--log-format %s logs %q, want %s", format, stderr.String(), want)
		}
	}
}

// The levels panic and fatal log less than error.
func TestLevels(t *testing.T) {
	for level, want := range map[string]int{"debug": 4, "info": 3, "warn": 2, "error": 1, "panic": 0, "fatal": 0} {
		var stderr buffer
		log, err := newLogger(&System{Stderr: &stderr}, settings.Log{Level: level, Format: "text"})
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("m")
		log.Info("m")
		log.Warn("m")
		log.Error("m")
		log.close()
		if got := strings.Count(stderr.String(), "\n"); got != want {
			t.Errorf("--log-level %s logs %d of 4 lines, want %d", level, got, want)
		}
	}
}

// blocked is an output that blocks until it is closed.
type blocked chan struct{}

// Write implements io.Writer.
func (b blocked) Write(p []byte) (int, error) {
	<-b
	return len(p), nil
}

// A blocked output delays neither the caller that logs, nor the other outputs, nor the exit of the
// process. The lines that it loses are counted.
func TestABlockedOutputOfTheLog(t *testing.T) {
	stderr := make(blocked)
	defer close(stderr)
	var stdout buffer
	log, err := newLogger(&System{Stdout: &stdout, Stderr: stderr}, settings.Log{Level: "info", Format: "json", Outputs: []string{"stderr", "stdout"}})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 10<<10)
	const lines = 3 * logQueueBytes / (10 << 10)
	for range lines {
		log.Info("m", "long", long)
	}
	for deadline := time.Now().Add(time.Minute); strings.Count(stdout.String(), "\n") == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	log.close()
	written := strings.Count(stdout.String(), `"msg":"m"`)
	// A third of the lines may be in the queue, and as many in the write that is blocked.
	if least := uint64(lines / 4); written == 0 || log.dropped() < least {
		t.Errorf("of %d lines for a blocked output and another one, the other has %d and %d were dropped, want some, and at least %d", lines, written, log.dropped(), least)
	}
}

// An output that was blocked gets the number of its missing lines.
func TestMissingLinesAreSaid(t *testing.T) {
	for level, want := range map[string]string{"info": `"level":"WARN","msg":"log lines are missing here: the output was blocked or failed","lines":7,"output":"stderr"`, "error": ""} {
		got := string(dropNotice(settings.Log{Level: level, Format: "json"}, "stderr")(7))
		if !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("--log-level %s: the line about missing lines is %q, want %s", level, got, want)
		}
	}
}

// A failed member exits although its error output is blocked.
func TestABlockedStandardErrorKeepsNoProcess(t *testing.T) {
	stderr := make(blocked)
	defer close(stderr)
	if code := run(System{Args: []string{"serve", "--no-such-flag"}, Stdout: &buffer{}, Stderr: stderr, Exit: func(int) {}}); code != exitUsage {
		t.Errorf("run() = %d, want %d", code, exitUsage)
	}
}
