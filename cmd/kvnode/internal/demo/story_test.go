//go:build unix

package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// These tests run the program itself, as a newcomer does.

const (
	modulePath     = "github.com/leaderlease/go"
	programPackage = modulePath + "/cmd/kvnode"
)

// build compiles kvnode as internal/release does, which needs the same packages, with an overlay if
// there is one.
func build(t *testing.T, overlay string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds and runs kvnode")
	}
	program := filepath.Join(t.TempDir(), "kvnode")
	args := []string{"build", "-trimpath", "-o", program}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, programPackage)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, text)
	}
	return program
}

// command is kvnode demo, with temporary files in a directory of the test's.
func command(ctx context.Context, program, tmp string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, append([]string{"demo"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	return cmd
}

// story runs the story and returns what it printed and its exit code.
func story(t *testing.T, program, tmp string) (string, int) {
	t.Helper()
	cmd := command(t.Context(), program, tmp, "--story", "--pace", "0")
	text, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	t.Logf("%s", text)
	return string(text), cmd.ProcessState.ExitCode()
}

// Only the story itself may know how it went, so it is counted here: seven
// scenes, no false claim, nothing left behind.
func TestStoryHolds(t *testing.T) {
	tmp := t.TempDir()
	text, code := story(t, build(t, ""), tmp)
	if code != 0 {
		t.Fatalf("exit code %d, want 0", code)
	}
	if n := len(regexp.MustCompile(`(?m)^\d\. `).FindAllString(text, -1)); n != 7 {
		t.Errorf("%d scenes, want 7", n)
	}
	held := strings.Count(text, "\n   ✓ ")
	if want := fmt.Sprintf("All %d claims were checked, and held.", held); !strings.Contains(text, want) || held < 20 {
		t.Errorf("%d claims have a mark; %q is missing, or they are too few", held, want)
	}
	if strings.Contains(text, "\n   ✗") || strings.Contains(text, "\x1b") {
		t.Error("a claim was false, or there are colours")
	}
	if !regexp.MustCompile(`a browser shows the leases as they are: http://127\.0\.0\.1:\d+/lease, or http://127\.0\.0\.1:\d+/lease\n`).MatchString(text) {
		t.Error("the addresses of the page of leases are missing")
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// The control of the whole story: a lease that does not end by the clock. The
// old leader then answers, in the instant before its peers tell it better; which
// of the two comes first is the scheduler's choice, so what they say is made late.
func TestStoryTellsThatALeaseDoesNotEnd(t *testing.T) {
	program := build(t, overlay(t,
		change{modulePath + "/leaderlease/core", "view.go", "v.From <= now && now < v.Usable", "v.From <= now"},
		change{modulePath + "/kvnode", "peers.go", "	if !p.node.lease.Incoming(m, leaderlease.ProcessID(process)) {", "	p.node.heedLate(m)\n	if !p.node.lease.Incoming(m, leaderlease.ProcessID(process)) {"},
		change{modulePath + "/kvnode", "publish.go", "func (p *publication) isPublished() bool {", `func (n *Node) heedLate(m interface{ GetTerm() uint64 }) {
			if n.Leader() == n.ID() && m.GetTerm() > n.Term() {
				time.Sleep(300 * time.Millisecond)
			}
		}

		func (p *publication) isPublished() bool {`},
	))
	tmp := t.TempDir()
	text, code := story(t, program, tmp)
	for _, want := range []string{"✗ awake again", "✗ the history of all", "claims did not hold:", "Data and logs are in " + tmp} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	wantKeptPage(t, text)
}

// wantKeptPage expects the page among the files of a story that keeps its files.
func wantKeptPage(t *testing.T, text string) {
	t.Helper()
	m := regexp.MustCompile(`(?m)^The story as a page, for a browser: (.*)$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatal("it is not said where the page is")
	}
	page, err := os.ReadFile(m[1])
	for _, want := range []string{"<!doctype html>", `"name":"n1"`, `"name":"n2"`, `"name":"n3"`, `"kind":"paused"`, `"kind":"killed"`, `"kind":"transfer"`} {
		if err != nil || !strings.Contains(string(page), want) {
			t.Errorf("the page has no %s: %v", want, err)
		}
	}
}

// change replaces a text in a file of a package.
type change struct{ pkg, file, old, replacement string }

// overlay writes the changes to copies of the files, for go build.
func overlay(t *testing.T, changes ...change) string {
	t.Helper()
	tmp := t.TempDir()
	plan := map[string]map[string]string{"Replace": {}}
	for _, c := range changes {
		dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", c.pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		original := filepath.Join(strings.TrimSpace(string(dir)), c.file)
		source, err := os.ReadFile(original)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(source), c.old) != 1 {
			t.Fatalf("%q is not once in %s: the planted bug must be moved", c.old, original)
		}
		changed := filepath.Join(tmp, c.file)
		plan["Replace"][original] = changed
		if err := os.WriteFile(changed, []byte(strings.Replace(string(source), c.old, c.replacement, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// session is a demo that runs.
type session struct {
	cmd   *exec.Cmd
	tmp   string
	lines chan string
	done  sync.WaitGroup
	pids  []int
}

// open starts a demo and reads on until it shows its first status line.
func open(t *testing.T, program string) *session {
	t.Helper()
	s := &session{tmp: t.TempDir(), lines: make(chan string, 1000)}
	s.cmd = command(t.Context(), program, s.tmp)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.done.Go(func() {
		defer close(s.lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			s.lines <- in.Text()
		}
	})
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it has ended unless the test has failed
		for range s.lines {
		}
		s.done.Wait()
	})
	return s
}

// until reads lines up to one that matches and returns all of them.
func (s *session) until(t *testing.T, pattern string) string {
	t.Helper()
	match := regexp.MustCompile(pattern)
	var text strings.Builder
	late := time.After(patience)
	for {
		select {
		case line, ok := <-s.lines:
			text.WriteString(line + "\n")
			if !ok {
				t.Fatalf("it ended before %q:\n%s", pattern, text.String())
			}
			if match.MatchString(line) {
				return text.String()
			}
		case <-late:
			t.Fatalf("no line is like %q:\n%s", pattern, text.String())
		}
	}
}

// greeting reads what the demo prints at first.
func (s *session) greeting(t *testing.T) string {
	t.Helper()
	text := s.until(t, `^n\d leads term`)
	for _, m := range regexp.MustCompile(`n\d  process (\d+)`).FindAllStringSubmatch(text, -1) {
		pid, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		s.pids = append(s.pids, pid)
	}
	if len(s.pids) != size {
		t.Fatalf("%d processes are named, want %d:\n%s", len(s.pids), size, text)
	}
	return text
}

// gone waits until none of the nodes runs.
func (s *session) gone(t *testing.T) {
	t.Helper()
	for _, pid := range s.pids {
		for try := 0; syscall.Kill(pid, 0) == nil && !zombie(pid); try++ {
			if try == 6000 {
				t.Fatalf("process %d still runs", pid)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// zombie reports whether a process has ended and its parent has not waited for it.
// A parent that has adopted it may never do so.
func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(text), ") Z ")
}

// wantPage expects the page of leases at an address.
func wantPage(t *testing.T, address string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil || !strings.Contains(string(body), "<title>Leader leases</title>") {
		t.Errorf("GET %s = %s %v, want the page of leases", address, resp.Status, err)
	}
}

func TestDemoGreetsShowsAndCleansUp(t *testing.T) {
	s := open(t, build(t, ""))
	text := s.greeting(t)
	for _, want := range []string{`path "lease"`, "export ETCDCTL_ENDPOINTS=127.0.0.1:", "etcdctl put hello world", "kvnode put hello again", "kvnode lock name", "/v3/kv/range -d '{\"key\": \"aGVsbG8=\"}'", "/metrics", "/lease shows the leases as they are", s.tmp} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	pasted(t, text)
	wantPage(t, regexp.MustCompile(`http://\S+/lease`).FindString(text))
	if err := syscall.Kill(s.pids[2], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.until(t, `^n3 ended by itself: signal: killed`)
	s.until(t, "n3 does not run")

	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	s.until(t, "^Stopping")
	for range s.lines {
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v, want exit code 0", err)
	}
	s.gone(t)
	if left, err := os.ReadDir(s.tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// pasted runs the lines of a greeting that need kvnode alone, and end, in a shell.
func pasted(t *testing.T, greeting string) {
	t.Helper()
	var script strings.Builder
	script.WriteString("set -e\n")
	for line := range strings.Lines(greeting) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "export ") || strings.HasPrefix(line, "kvnode ") && !strings.HasPrefix(line, "kvnode watch") {
			script.WriteString(line + "\n")
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script.String())
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"OK\nhello\nagain\n", " leader ", "token "} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("%s\nprinted %s, %v, want %q", script.String(), out, err, want)
		}
	}
}

func TestNodesDoNotOutliveADemoThatIsKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends children with their parent")
	}
	s := open(t, build(t, ""))
	s.greeting(t)
	if err := syscall.Kill(s.pids[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait() // it was killed
	s.gone(t)
}
