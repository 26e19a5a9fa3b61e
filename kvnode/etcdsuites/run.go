package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// testTimeout is the timeout of one test of etcd; the longest takes two minutes. A test that
// is known to fail as a whole may wait for a log line for ever.
const (
	testTimeout  = "5m"
	knownTimeout = "30s"
)

// run is the record of all tests that were run.
type run struct {
	outcomes map[string]outcome // by suite and name
	output   map[string]string  // of those of the first level
}

// tests lists the tests of a suite that only matches.
func (b bench) tests(ctx context.Context, suite string, only *regexp.Regexp) ([]string, error) {
	cmd := b.command(ctx, suite, b.binary(suite), "-test.list", ".")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", suite, err)
	}
	var names []string
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(name, "Test") && only.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// command makes a command that runs in the suite's directory and finds
// kvnode.
func (b bench) command(ctx context.Context, suite, name string, args ...string) *exec.Cmd {
	if !strings.HasPrefix(suite, "integration") {
		args = append(args, "-bin-dir", b.bin())
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = b.home(suite)
	cmd.Env = append(os.Environ(), "ETCDSUITES_KVNODE="+b.kvnode(), "RESULTS_DIR="+cmp.Or(b.logs, b.dir))
	cmd.WaitDelay = time.Second
	return cmd
}

// perform runs one test of the first level as a process of its own, so that a
// panic or the time limit ends that test alone.
func (b bench) perform(ctx context.Context, suite, name, timeout string) (*heard, error) {
	defer b.sweep()
	cmd := b.command(ctx, suite, "go", "tool", "test2json", b.binary(suite),
		"-test.v=test2json", "-test.timeout", timeout, "-test.run", "^"+name+"$")
	out, _ := cmd.Output() // that it failed stands in what it says
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s %s: %w", suite, name, ctx.Err())
	}
	h, err := listen(bytes.NewReader(out))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", suite, name, err)
	}
	// A process may fail after its test has passed, if a goroutine of etcd's
	// framework has not ended by then: that is no failure of kvnode.
	if _, met := h.outcomes[name]; !met {
		h.outcomes[name] = failed
	}
	return h, nil
}

// sweep kills the processes that an aborted test has left behind: they would keep the
// ports. It needs /proc.
func (b bench) sweep() {
	processes, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, exe := range processes {
		if program, err := os.Readlink(exe); err != nil || filepath.Dir(program) != b.bin() {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(exe))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by now
		}
	}
}

// all runs the tests of the suites one after another: they use the same ports.
func (b bench) all(ctx context.Context, suites []string, only *regexp.Regexp, list known) (*run, error) {
	r := &run{outcomes: map[string]outcome{}, output: map[string]string{}}
	for _, suite := range suites {
		names, err := b.tests(ctx, suite, only)
		if err != nil {
			return nil, err
		}
		for n, name := range names {
			begin := time.Now()
			timeout := testTimeout
			if c, is := list[suite+" "+name]; is && !c.sometimes {
				timeout = knownTimeout
			}
			for range b.count {
				h, err := b.perform(ctx, suite, name, timeout)
				if err != nil {
					return nil, err
				}
				if err := r.record(suite, name, h, b); err != nil {
					return nil, err
				}
				fmt.Fprintf(os.Stderr, "%d/%d %s %s %s %.1fs\n", n+1, len(names), h.outcomes[name], suite, name, time.Since(begin).Seconds())
			}
		}
	}
	return r, nil
}

// record adds what one process of a test said. A test that has failed before stays failed.
func (r *run) record(suite, name string, h *heard, b bench) error {
	for test, got := range h.outcomes {
		if r.outcomes[suite+" "+test] != failed {
			r.outcomes[suite+" "+test] = got
		}
	}
	if r.output[suite+" "+name] != "" && h.outcomes[name] != failed {
		return nil
	}
	r.output[suite+" "+name] = h.output.String()
	return b.save(suite+" "+name, h.output.String())
}

// save writes a test's output to a file in the log directory, if there is one.
func (b bench) save(test, output string) error {
	if b.logs == "" {
		return nil
	}
	if err := os.MkdirAll(b.logs, 0o700); err != nil {
		return fmt.Errorf("the directory for logs: %w", err)
	}
	name := strings.NewReplacer("/", "-", " ", "-").Replace(test) + ".log"
	if err := os.WriteFile(filepath.Join(b.logs, name), []byte(output), 0o600); err != nil {
		return fmt.Errorf("save what %s said: %w", test, err)
	}
	return nil
}

// event is a line of go tool test2json.
type event struct {
	Action string
	Test   string
	Output string
}

// heard is the output of a test's process.
type heard struct {
	outcomes map[string]outcome // by name, without the suite
	output   strings.Builder
}

// listen reads the events of one process. A test that began and did not end,
// because of a panic or the time limit, has failed.
func listen(r io.Reader) (*heard, error) {
	h := &heard{outcomes: map[string]outcome{}}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return h, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read what a test says: %w", err)
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%q is no line of test2json: %w", line, err)
		}
		h.hear(e)
	}
}

func (h *heard) hear(e event) {
	h.output.WriteString(e.Output)
	if e.Test == "" {
		return
	}
	switch e.Action {
	case "run":
		h.outcomes[e.Test] = failed
	case "pass", "fail", "skip":
		h.outcomes[e.Test] = outcome(e.Action)
	}
}
