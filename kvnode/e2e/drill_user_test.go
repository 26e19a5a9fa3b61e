package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/leaderlease/go/internal/testcluster"
)

// unitUser is the ID of the user and group that members have in a drill. In the unit it is kvnode.
const unitUser = 65532

// separate makes the members run as another user than the commands, as under the unit, if the test runs
// as root. Otherwise the drill does not show that members may read what the commands write.
func (m *machines) separate(p testcluster.Program) {
	m.t.Helper()
	setpriv, err := exec.LookPath("setpriv")
	m.separated = err == nil && os.Geteuid() == 0
	if !m.separated {
		m.t.Logf("LEFT OUT: members run as the user of the test, which is not root or has no setpriv: %v", err)
		m.standIn("chown", `test "$1" = kvnode: || test "$1 $2" = "-R kvnode:"`)
		return
	}
	chown, err := exec.LookPath("chown")
	must(m.t, err)
	m.standIn("chown", fmt.Sprintf(`for arg; do
  if test "$arg" = kvnode:; then arg=%[1]d:%[1]d; fi
  set -- "$@" "$arg"
  shift
done
exec %[2]s "$@"`, unitUser, chown))
	for _, path := range []string{p.Path, m.path("bin"), m.Members()[0].Dir} {
		reachable(m.t, filepath.Dir(path))
	}
	m.give(filepath.Dir(m.Members()[0].Dir))
	for _, one := range m.Members() {
		as := []string{fmt.Sprint("--reuid=", unitUser), fmt.Sprint("--regid=", unitUser), "--clear-groups", "--pdeathsig=keep", one.Program.Path}
		one.Program.Path, one.Program.Args = setpriv, slices.Concat(as, one.Program.Args)
	}
}

// give makes the members' user the owner of a directory.
func (m *machines) give(path string) {
	m.t.Helper()
	if m.separated {
		must(m.t, os.Chown(path, unitUser, unitUser))
	}
}

// reachable lets all users go through a temporary directory and those above it.
func reachable(t *testing.T, dir string) {
	t.Helper()
	for ; dir != filepath.Dir(dir) && dir != filepath.Clean(os.TempDir()); dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		must(t, err)
		if info.Mode().Perm()&0o011 != 0o011 {
			must(t, os.Chmod(dir, info.Mode().Perm()|0o011))
		}
	}
}
