//go:build unix

package restore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A named pipe is refused at once. A restore reads its file more than once.
func TestANamedPipeIsNoSnapshot(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	cfg := restoreOf(t, pipe)
	refused := make(chan error, 2)
	go func() {
		_, err := Snapshot(cfg)
		refused <- err
		_, err = Inspect(pipe)
		refused <- err
	}()
	for range cap(refused) {
		select {
		case err := <-refused:
			if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "not a regular file") {
				t.Errorf("a named pipe: %v, want ErrForeign", err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("a named pipe is waited for", os.RemoveAll(pipe))
		}
	}
}
