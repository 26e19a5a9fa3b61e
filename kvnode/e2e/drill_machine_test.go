package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leaderlease/go/internal/testcluster"
)

// machines is the environment of the page's commands: members run by units, and the
// programs and variables that the page names. All members run on this machine.
type machines struct {
	*testcluster.Cluster
	t   *testing.T
	dir string // of what is made here; files of the test only
	env []string
	// values are the variables that the page asks operators to set.
	values map[string]string
	// between is a script that the test runs between two blocks of one name.
	between string
	// plain means that neither members nor etcd have certificates.
	plain bool
	// separated means that members run as another user than the commands.
	separated bool
	// mounted means that m3 has a disk of its own.
	mounted bool
	// mu is held by each unit and by the test while they start or stop members.
	mu sync.Mutex
}

// systemctlEnv makes the test binary act as systemctl. Its value is the address of the test,
// which starts and stops the processes.
const systemctlEnv = "E2E_SYSTEMCTL"

// outputTail is how much of the commands' output a failure shows.
const outputTail = 4 << 10

// patientKvnode is a wrapper that gives kvnode's requests etcdctl's timeout, instead of two or five
// seconds. An upgrade replaces the program that it wraps.
const patientKvnode = `case "$1" in status|get) sub=$1; shift; exec %[1]s "$sub" --timeout=30s "$@" ;; esac
exec %[1]s "$@"`

// blockTimeout is the timeout of one block. Its commands wait for members, not for fixed times.
const blockTimeout = 2 * patience

func newMachines(t *testing.T, p testcluster.Program) *machines {
	t.Helper()
	m := &machines{Cluster: newCluster(t, testcluster.Config{Program: p, Size: 4}), t: t, dir: t.TempDir(), values: make(map[string]string)}
	bin := m.path("bin")
	must(t, os.Mkdir(bin, 0o755))
	must(t, os.Mkdir(m.path("shell"), 0o700))
	must(t, os.Symlink(p.Path, filepath.Join(bin, "kvnode")))
	for name, script := range standIns {
		m.standIn(name, script)
	}
	// The page's commands set no timeouts, with one exception. The last of repeated flags counts.
	m.standIn("etcdctl", fmt.Sprintf("exec %s %s \"$@\"", binaryPath(t, "etcdctl"), strings.Join(patient, " ")))
	must(t, os.Mkdir(m.path("patient"), 0o700))
	m.script("patient/kvnode", fmt.Sprintf(patientKvnode, filepath.Join(bin, "kvnode")))
	self, err := os.Executable()
	must(t, err)
	script := fmt.Sprintf("#!/bin/sh\nexec env %s=%s %s \"$@\"\n", systemctlEnv, m.listen(), self)
	must(t, os.WriteFile(filepath.Join(bin, "systemctl"), []byte(script), 0o700))
	m.env = []string{"PATH=" + m.path("patient") + ":" + bin + ":" + os.Getenv("PATH")}
	m.set("BIN", bin)
	m.set("CONF", m.path("conf"))
	m.set("DATA", filepath.Dir(m.Members()[0].Dir))
	for _, name := range []string{"UNITS", "BACKUP", "PROMETHEUS", "TLS", "AUTHORITY", "SOURCE"} {
		m.set(name, m.path(strings.ToLower(name)))
	}
	m.checkout()
	m.set("VERSION", releaseVersion)
	m.set("PLATFORM", runtime.GOOS+"_"+runtime.GOARCH)
	m.set("IMAGE", "registry.example.com/kvnode:v0.1.0")
	m.set("TOKEN", "drill")
	m.urls("https")
	for _, one := range m.Members() {
		one.Program.Path = filepath.Join(bin, "kvnode") // which an upgrade replaces
		one.Flags = []string{"--config-file=" + filepath.Join(m.path("conf"), one.Name+".yaml")}
	}
	m.separate(p)
	return m
}

// checkout copies the files of deploy that the commands read to $SOURCE.
func (m *machines) checkout() {
	m.t.Helper()
	must(m.t, os.MkdirAll(filepath.Join(m.values["SOURCE"], "deploy", "systemd"), 0o700))
	must(m.t, os.MkdirAll(m.path("units"), 0o700))
	for _, name := range []string{"operations.sh", "systemd/kvnode.service"} {
		must(m.t, os.WriteFile(filepath.Join(m.values["SOURCE"], "deploy", name), read(m.t, filepath.Join("../../deploy", name)), 0o600))
	}
}

func (m *machines) path(name string) string { return filepath.Join(m.dir, name) }

func (m *machines) set(name, value string) { m.values[name] = value }

// assignment matches one variable assignment with an example value, which operators replace.
var assignment = regexp.MustCompile(`\b[A-Z][A-Z0-9_]*=[^\s"$]+`)

// setsFirst matches a line that begins with an assignment.
var setsFirst = regexp.MustCompile("^" + assignment.String())

// edited returns a script of the page as an operator types it, with the operator's values in place of
// the examples at the beginnings of lines.
func (m *machines) edited(script string) string {
	var b strings.Builder
	for line := range strings.Lines(script) {
		if setsFirst.MatchString(line) {
			line = assignment.ReplaceAllStringFunc(line, func(set string) string {
				name, _, _ := strings.Cut(set, "=")
				if value, ok := m.values[name]; ok {
					return name + "='" + value + "'"
				}
				return set
			})
		}
		b.WriteString(line)
	}
	return b.String()
}

// urls sets the members' addresses.
func (m *machines) urls(scheme string) {
	for _, one := range m.Members() {
		name := strings.ToUpper(one.Name)
		m.set(name, scheme+"://"+one.Endpoint)
		m.set(name+"_PEER", scheme+"://"+one.Peer)
	}
}

// common sets the common configuration of all members.
func (m *machines) common(yaml string) {
	m.t.Helper()
	must(m.t, os.MkdirAll(m.path("conf"), 0o755))
	must(m.t, os.WriteFile(filepath.Join(m.path("conf"), "common.yaml"), []byte(yaml), 0o600))
}

// perform runs the block of commands with that name as the page shows it.
func (m *machines) perform(name string) {
	m.t.Helper()
	begin := time.Now()
	script, lines := numbered(m.edited(strings.Join(commands(m.t, name), m.between)))
	out, err := m.sh(script)
	if err != nil {
		m.t.Fatalf("drill:%s of %s: %v:\n%s", name, procedures, err, out[max(0, len(out)-outputTail):])
	}
	if left, err := os.ReadDir(m.path("shell")); err != nil || len(left) > 0 {
		m.t.Errorf("drill:%s of %s writes %v to where it is run, %v: an operator's shell may be anywhere", name, procedures, left, err)
	}
	if none := unreached(lines, out); len(none) > 0 {
		m.t.Errorf("drill:%s of %s: these were not run: %q", name, procedures, none)
	}
	m.t.Logf("drill:%s took %v", name, time.Since(begin).Round(10*time.Millisecond))
}

// found founds the cluster. Its members then serve reads and writes. Their names may be missing in
// the list of members until they report ready.
func (m *machines) found() {
	m.t.Helper()
	m.certify()
	m.perform("first-start")
	for _, one := range m.Members()[:3] {
		must(m.t, one.WaitReady(deadline(m.t)))
	}
}

// ended kills background commands of the script.
const ended = "trap 'kill ${!-} 2>/dev/null || :' EXIT\n"

// sh runs commands in a shell with PATH, the page's variables and the common functions only, until one
// fails. Output to descriptor 3 comes before all other output.
func (m *machines) sh(script string) (string, error) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), blockTimeout)
	defer cancel()
	common := m.edited(commands(m.t, "variables")[0]) + commands(m.t, "setup")[0]
	cmd := exec.CommandContext(ctx, "sh", "-eux", "-c", ended+common+script)
	// Background commands have been killed, and their end closes the output.
	cmd.Dir, cmd.Env, cmd.WaitDelay = m.path("shell"), m.env, patience
	said, err := os.CreateTemp(m.dir, "said")
	must(m.t, err)
	defer said.Close()
	cmd.ExtraFiles = []*os.File{said}
	out, err := cmd.CombinedOutput()
	return string(read(m.t, said.Name())) + string(out), errors.Join(err, ctx.Err())
}

// listen serves requests of systemctl until the test ends.
func (m *machines) listen() string {
	m.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(m.t, err)
	var answers sync.WaitGroup
	answers.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answers.Go(func() {
				defer c.Close()
				line, _ := bufio.NewReader(c).ReadString('\n')
				if err := m.systemctl(strings.Fields(line)); err != nil {
					_, _ = fmt.Fprint(c, err)
				}
			})
		}
	})
	m.t.Cleanup(func() {
		_ = l.Close()
		answers.Wait()
	})
	return l.Addr().String()
}

// systemctl performs one command line on the units.
func (m *machines) systemctl(words []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Equal(words, []string{"daemon-reload"}) {
		return nil
	}
	words = slices.DeleteFunc(words, func(word string) bool { return word == "--no-block" })
	if len(words) > 2 && words[0] == "enable" && words[1] == "--now" {
		words = append([]string{"start"}, words[2:]...)
	}
	if len(words) > 2 && words[0] == "disable" && words[1] == "--now" {
		words = append([]string{"stop"}, words[2:]...)
	}
	if len(words) < 2 {
		return fmt.Errorf("systemctl %q: what, and to which unit?", words)
	}
	for _, unit := range words[1:] {
		one := m.member(strings.TrimPrefix(unit, "kvnode@"))
		if one == nil {
			return fmt.Errorf("there is no unit %s", unit)
		}
		if err := act(words[0], one); err != nil {
			return err
		}
	}
	return nil
}

func act(verb string, one *testcluster.Member) error {
	switch verb {
	case "is-active":
		if !one.Running() {
			return errors.New("inactive")
		}
		return nil
	case "disable":
		return nil
	}
	stops, starts := verb == "stop" || verb == "restart", verb == "start" || verb == "restart"
	if !stops && !starts {
		return fmt.Errorf("systemctl knows no %s", verb)
	}
	if stops && one.Running() {
		ctx, cancel := context.WithTimeout(context.Background(), blockTimeout)
		defer cancel()
		if _, err := one.Terminate(ctx); err != nil {
			return err
		}
	}
	if starts {
		return one.Start()
	}
	return nil
}

func (m *machines) member(name string) *testcluster.Member {
	for _, one := range m.Members() {
		if one.Name == name {
			return one
		}
	}
	return nil
}

// beSystemctl is the main function of the test binary as systemctl.
func beSystemctl(addr string, args []string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := fmt.Fprintln(c, strings.Join(args, " ")); err != nil {
		return err
	}
	var text strings.Builder
	if _, err := bufio.NewReader(c).WriteTo(&text); err != nil {
		return err
	}
	if text.Len() > 0 {
		return errors.New(text.String())
	}
	return nil
}

// drillDiskSize has room for the log's segments of 64 MiB, the spare segments and a small store.
const drillDiskSize = "900m"

// drillDisk fills the disk of m3 until a checkpoint fails.
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
		// The members with files there must end first, but the test's cleanups would run in the other order.
		must(m.t, m.Kill())
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			m.t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// fill writes a file until the disk is full, if the disk is small.
func (m *machines) fill(path string) {
	m.t.Helper()
	f, err := os.Create(path)
	must(m.t, err)
	defer f.Close()
	for block := make([]byte, 1<<20); m.mounted && err == nil; {
		_, err = f.Write(block)
	}
}

// unitUser is the ID of the members' user and group in a drill. In the unit it is kvnode.
const unitUser = 65532

// separate makes the members run as another user than the commands, as under the unit, if the test runs
// as root. Otherwise the drill does not show that members may read files of the commands.
func (m *machines) separate(p testcluster.Program) {
	m.t.Helper()
	setpriv, err := exec.LookPath("setpriv")
	m.separated = err == nil && os.Geteuid() == 0
	if !m.separated {
		m.t.Logf("LEFT OUT: members run as the user of the test, which is not root or has no setpriv: %v", err)
		m.standIn("chown", `test "$1" = kvnode: || test "$1 $2" = "-R kvnode:"`)
		m.standIn("runuser", `test "$1 $2 $3" = "-u kvnode --" && shift 3 && exec "$@"`)
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
	as := []string{fmt.Sprint("--reuid=", unitUser), fmt.Sprint("--regid=", unitUser), "--clear-groups"}
	m.standIn("runuser", fmt.Sprintf(`test "$1 $2 $3" = "-u kvnode --" && shift 3
PATH=%s:$PATH exec %s %s "$@"`, m.path("bin"), setpriv, strings.Join(as, " ")))
	for _, path := range []string{p.Path, m.path("bin"), m.Members()[0].Dir} {
		reachable(m.t, filepath.Dir(path))
	}
	m.give(filepath.Dir(m.Members()[0].Dir))
	for _, one := range m.Members() {
		one.Program.Path, one.Program.Args = setpriv, slices.Concat(as, []string{"--pdeathsig=keep", one.Program.Path}, one.Program.Args)
	}
}

// give makes the members' user the owner of a directory.
func (m *machines) give(path string) {
	m.t.Helper()
	if m.separated {
		must(m.t, os.Chown(path, unitUser, unitUser))
	}
}

// reachable lets all users enter a temporary directory and its parents.
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
