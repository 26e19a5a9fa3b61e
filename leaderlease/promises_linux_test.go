package leaderlease

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// What is written is synced: a pipe takes the text and refuses the sync, which a crash
// alone would show otherwise.
func TestThePromiseIsSynced(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	pipe := fmt.Sprintf("/proc/self/fd/%d", w.Fd())
	if err := (disk{}).write(pipe, "1s"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("write() to what cannot be synced = %v, want %v", err, syscall.EINVAL)
	}
	if err := (disk{}).write("/dev/full", "1s"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write() to what is full = %v, want %v", err, syscall.ENOSPC)
	}
	if err := (disk{}).syncDir(filepath.Join(t.TempDir(), "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("syncDir() of what is gone = %v, want %v", err, os.ErrNotExist)
	}
}
