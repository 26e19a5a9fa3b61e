package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// drillDiskSize is enough for a log's segments of 64 MiB, the spare ones and a small store.
const drillDiskSize = "400m"

// drillDisk fills the disk of m3 until a checkpoint finds no room.
func drillDisk(t *testing.T, m *machines) {
	m.common("snapshot-count: 100\n")
	disk := m.mount()
	must(t, os.Mkdir(filepath.Join(disk, "m3"), 0o700))
	m.give(filepath.Join(disk, "m3"))
	must(t, os.Symlink(filepath.Join(disk, "m3"), m.member("m3").Dir))
	m.found()
	a, _ := memberClients(t, m.Cluster)
	m.perform("disk-reserve")
	m.fill(filepath.Join(disk, "other"))
	for full, begin := !m.mounted, time.Now(); !full; {
		if time.Since(begin) > blockTimeout {
			t.Fatalf("the disk is not full after %v", blockTimeout)
		}
		putSurely(t, a, "k", strings.Repeat("x", 100<<10))
		out, err := m.sh("fetch \"$M3/readyz?verbose\" || true\n")
		must(t, err)
		full = strings.Contains(out, "[-]disk_space")
	}
	m.perform("disk")
}

// mount returns a directory on a small disk of its own. Without the permission to mount one it returns
// a plain directory: the commands are performed on a disk with room.
func (m *machines) mount() string {
	m.t.Helper()
	dir := m.path("disk")
	must(m.t, os.Mkdir(dir, 0o755))
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+drillDiskSize, "tmpfs", dir).CombinedOutput(); err != nil {
		m.t.Logf("no small disk, so none will be full: %v: %s", err, out)
		return dir
	}
	m.mounted = true
	m.t.Cleanup(func() {
		// The members that have files there end before, but the test's clean-ups come in
		// the other order.
		must(m.t, m.Kill())
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			m.t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// fill writes a file until there is no room, if the disk is small.
func (m *machines) fill(path string) {
	m.t.Helper()
	f, err := os.Create(path)
	must(m.t, err)
	defer f.Close()
	for block := make([]byte, 1<<20); m.mounted && err == nil; {
		_, err = f.Write(block)
	}
}
