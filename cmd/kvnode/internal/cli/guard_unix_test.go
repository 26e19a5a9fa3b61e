//go:build unix

package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
)

// A supervisor sends the death notice and exits even if it cannot open its log: the directory is gone,
// or the log is a pipe, which cannot be opened before it has a reader.
func TestALateLoggerIsNotWaitedFor(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pipe, filepath.Join(t.TempDir(), "gone", "log")} {
		var stderr bytes.Buffer
		const hangs = 20 * time.Second
		began := time.Now()
		reader := time.AfterFunc(hangs, func() { // or the test hangs
			if f, err := os.Open(pipe); err == nil {
				_ = f.Close()
			}
		})
		log := lateLogger(&System{Stderr: &stderr}, settings.Log{Outputs: []string{name}, Format: "json"})
		log.Info("told")
		log.close()
		took := time.Since(began)
		if got := stderr.String(); took >= hangs || !strings.Contains(got, `"told"`) || !strings.Contains(got, name) {
			t.Errorf("a log in %s was given up after %v, and standard error says %q; want the line, and why it is there", name, took, got)
		}
		reader.Stop()
	}
	f, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0) // the supervisor's open returns
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
