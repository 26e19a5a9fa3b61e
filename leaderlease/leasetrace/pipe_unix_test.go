//go:build unix

package leasetrace_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// A member must not wait for a reader of its trace when it starts. The test opens the pipe
// for reading, so that a failing test does not block.
func TestANamedPipeIsNoFileForATrace(t *testing.T) {
	trace, _ := sole(t)
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	r, err := leasetrace.Record(name, trace, func(error) {})
	r.Close()
	if err == nil || !strings.Contains(err.Error(), name+" is a named pipe") {
		t.Errorf("Record = %v, want that it is a named pipe", err)
	}
}
