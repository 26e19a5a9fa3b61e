package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// releaseVersion is that of the archives which the drills install.
const releaseVersion = "v0.0.1"

// checkout returns a directory with a checkout of the last commit, which is tagged as a release.
func checkout() string { return filepath.Join(binDir, "clone") }

// archives makes a checkout and a release of it for this machine, as `make release` does, and returns the
// directory of the release.
var archives = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	clone, dir := checkout(), filepath.Join(binDir, "dist")
	for _, step := range []struct {
		in   string
		args []string
	}{
		{".", []string{"git", "clone", "-q", "--depth=1", "file://" + root, clone}},
		{clone, []string{"git", "tag", releaseVersion}},
		{clone, []string{"go", "run", "./internal/release", releaseVersion, dir, runtime.GOOS + "/" + runtime.GOARCH}},
	} {
		cmd := exec.CommandContext(ctx, step.args[0], step.args[1:]...)
		cmd.Dir = step.in
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%q: %w\n%s", step.args, err, out)
		}
	}
	return dir, nil
})

// standIns replace programs that the page names and a test must not run. They check that their
// arguments exist.
var standIns = map[string]string{
	// useradd fails if the user exists, which id reports.
	"useradd": `test "$*" = "--system --user-group kvnode"
test ! -e ../user
touch ../user`,
	"id": `test "$*" = kvnode
test -e ../user`,
	// All members are on one machine. Its commands have no variables of the operator.
	"ssh": `test "$1 $2" = "-n root@127.0.0.1"
shift 2
exec env -i PATH="$PATH" sh -c "$*" < /dev/null`,
	"scp": `case "$1" in -q) flags= ;; -rq) flags=-R ;; *) exit 1 ;; esac
test $# = 3
from=${2#root@127.0.0.1:} to=${3#root@127.0.0.1:}
test "$from $to" != "$2 $3"
exec cp $flags "$from" "$to"`,
	// Each file that the Containerfile copies is in the directory.
	"docker": `image=registry.example.com/kvnode:v0.1.0
test "$1 $2" = "push $image" && exec test -e ../built
test "$1 $2 $3 $4" = "build -t $image -f"
touch ../built
awk '$1 == "COPY" { print $(NF-1) }' "$5" | while read -r name; do test -s "$6/$name" || exit 1; done`,
	"kubectl": `case "$1 $2" in
"apply -f") grep -q '^kind: StatefulSet$' "$3" && grep -q 'image: registry.example.com/kvnode:v0.1.0$' "$3" && cp "$3" ../applied.yaml ;;
"rollout status") grep -q "^metadata: {name: ${3#statefulset/}," ../applied.yaml ;;
*) exit 1 ;;
esac`,
}

// release gives the machines a whole checkout with the archives of a release, which they unpack there.
func (m *machines) release() {
	m.t.Helper()
	dir, err := archives()
	must(m.t, err)
	m.set("SOURCE", m.path("clone"))
	if out, err := exec.CommandContext(m.t.Context(), "git", "clone", "-q", "--depth=1", "file://"+checkout(), m.path("clone")).CombinedOutput(); err != nil {
		m.t.Fatalf("git clone: %v: %s", err, out)
	}
	must(m.t, os.CopyFS(filepath.Join(m.path("clone"), "dist"), os.DirFS(dir)))
	m.checkout()
}

// standIn puts a program into the place of one of the machine's.
func (m *machines) standIn(name, script string) {
	m.t.Helper()
	m.script(filepath.Join("bin", name), script)
}

// script writes a program.
func (m *machines) script(path, script string) {
	m.t.Helper()
	must(m.t, os.WriteFile(m.path(path), []byte("#!/bin/sh\nset -e\n"+script+"\n"), 0o700))
}

// needs makes do without a program that is not installed here, and says so.
func (m *machines) needs(name string) {
	m.t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		m.t.Logf("LEFT OUT: what %s would say: %v", name, err)
		m.standIn(name, "true")
	}
}

// standInGo makes the commands run Go with the caches of the test, since their shell has no HOME.
func (m *machines) standInGo() {
	m.t.Helper()
	path, err := exec.LookPath("go")
	must(m.t, err)
	names := []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY"}
	values, err := exec.CommandContext(m.t.Context(), path, append([]string{"env"}, names...)...).Output()
	must(m.t, err)
	set := "GOFLAGS=-trimpath"
	for i, value := range strings.Split(strings.TrimSpace(string(values)), "\n") {
		set += fmt.Sprintf(" %s='%s'", names[i], value)
	}
	m.standIn("go", fmt.Sprintf("exec env %s %s \"$@\"", set, path))
}

// drillInstall installs from a checkout without TLS, and from a release with TLS.
func drillInstall(t *testing.T, m *machines) {
	m.release()
	m.needs("systemd-analyze")
	m.needs("promtool")
	if m.plain {
		m.standInGo()
		m.set("SOURCE", checkout())
		m.perform("build")
	} else {
		m.perform("unpack")
	}
	m.perform("install")
	m.perform("install") // an operator may repeat it
	out, err := m.sh("kvnode --version\n")
	if err != nil || !strings.Contains(out, "kvnode Version: "+releaseVersion) {
		t.Errorf("kvnode --version = %s, %v, want %s", out, err, releaseVersion)
	}
	unit := string(read(t, filepath.Join(m.path("units"), "kvnode@.service")))
	if want := fmt.Sprintf("ExecStart=%s/kvnode serve --config-file %s/%%i.yaml\n", m.path("bin"), m.path("conf")); !strings.Contains(unit, want) {
		t.Errorf("the unit is\n%swant in it %s", unit, want)
	}
	// All other directories are read-only.
	if want := fmt.Sprintf("\nReadWritePaths=%s\n", m.values["DATA"]); !strings.Contains(unit, want) || !strings.Contains(unit, "\nUser=kvnode\n") {
		t.Errorf("the unit is\n%swant in it %s, and the user kvnode", unit, want)
	}
	// systemd takes a unit with settings that it does not know, and says so.
	if out, err := m.sh("systemd-analyze verify \"$UNITS/kvnode@.service\"\n"); err != nil || strings.Contains(out, "ignoring") {
		t.Errorf("systemd-analyze verify = %s, %v", out, err)
	}
	m.found()
	m.perform("watch")
	m.perform("slow")
	m.perform("alert")
	var prometheus struct {
		Scrapes []struct {
			Scheme string
			TLS    map[string]string            `yaml:"tls_config"`
			Static []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	must(t, yaml.Unmarshal(read(t, filepath.Join(m.path("prometheus"), "prometheus.yml")), &prometheus))
	want := fmt.Sprintf("[{http map[] [{%v}]}]", m.Endpoints()[:3])
	if !m.plain {
		want = fmt.Sprintf("[{https map[ca_file:%[1]s/ca.crt cert_file:%[1]s/client.crt key_file:%[1]s/client.key] [{%[2]v}]}]", m.path("tls"), m.Endpoints()[:3])
	}
	if got := fmt.Sprint(prometheus.Scrapes); got != want {
		t.Errorf("Prometheus scrapes %s, want %s", got, want)
	}
}
