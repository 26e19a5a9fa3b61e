package main

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	"github.com/leaderlease/go/internal/testcluster"
)

// served is a member that Main runs.
type served struct {
	t        *testing.T
	client   string
	stderr   buffer
	exited   chan int // what Main returned
	atOnce   chan int // what Exit was called with
	dataDir  string
	httpAddr string
}

func serving(t *testing.T, args ...string) *served {
	t.Helper()
	s := &served{
		t: t, client: free(t), httpAddr: free(t), dataDir: t.TempDir(),
		exited: make(chan int, 1), atOnce: make(chan int, 1),
	}
	args = append([]string{
		"serve", "--data-dir", s.dataDir, "--listen-client-urls", "http://" + s.client,
		"--listen-peer-urls", "http://" + free(t), "--listen-client-http-urls", "http://" + s.httpAddr,
	}, args...)
	go func() {
		s.exited <- run(System{Args: args, Stdout: &s.stderr, Stderr: &s.stderr, Exit: func(code int) { s.atOnce <- code }})
	}()
	return s
}

// free returns an address that was free a moment ago.
func free(t *testing.T) string {
	t.Helper()
	addr, err := testcluster.FreeAddr(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// says waits for a log line.
func (s *served) says(what string) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(s.stderr.String(), what); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("a minute has passed, want a line with %q: %s", what, s.stderr.String())
		}
	}
}

func (s *served) exits(want int) {
	s.t.Helper()
	select {
	case code := <-s.exited:
		if code != want {
			s.t.Errorf("kvnode serve = %d, want %d: %s", code, want, s.stderr.String())
		}
	case <-time.After(time.Minute):
		s.t.Fatalf("a minute has passed, want kvnode serve to end: %s", s.stderr.String())
	}
}

// send sends a signal to this process, which runs the member.
func send(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		t.Fatal(err)
	}
}

// A member starts, logs that it is ready, answers requests and stops on a signal. Its log can be
// inspected afterwards.
func TestServe(t *testing.T) {
	s := serving(t, "--name", "solo", "--unsafe-no-fsync")
	s.says("ready to serve client requests")
	s.says("has no effect because kvnode always syncs")

	prints(t, []string{"status", "--endpoints", "http://" + s.client}, "solo", "leader", "valid")
	code, stdout, _ := kvnode("status", "-o", "json", "--endpoints", s.client+","+free(t))
	var answers []answer
	if err := json.Unmarshal([]byte(stdout), &answers); err != nil || code != exitFailed || len(answers) != 2 ||
		answers[0].Status == nil || answers[0].Error != "" || answers[1].Status != nil || answers[1].Error == "" {
		t.Errorf("kvnode status of two, one of them dead = %d %s, want one status, one error, and exit code 1", code, stdout)
	}

	send(t, syscall.SIGTERM)
	s.exits(exitOK)
	for line := range strings.Lines(s.stderr.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["level"] == nil || fields["msg"] == nil {
			t.Errorf("the log has %q, want JSON with level and msg", line)
		}
	}

	prints(t, []string{"wal", "verify", s.dataDir}, "no damage")
	// The member's registration is among the records.
	prints(t, []string{"wal", "dump", s.dataDir}, "hard state", "register")
}

// prints runs a command that succeeds, and prints all of want.
func prints(t *testing.T, args []string, want ...string) {
	t.Helper()
	code, stdout, stderr := kvnode(args...)
	for _, text := range want {
		if code != exitOK || !strings.Contains(stdout, text) {
			t.Errorf("kvnode %v = %d %s %s, want %q", args, code, stdout, stderr, text)
		}
	}
}

// One wish that comes twice, as from a terminal through a wrapper, is one; a
// later second signal is another.
func TestOneWishTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &signals{stop: make(chan struct{})}
		received := make(chan os.Signal, 2)
		heard := make(chan bool, 1)
		go func() { heard <- s.wait(received, again) }()
		for range 2 {
			time.Sleep(again / 3)
			received <- syscall.SIGINT
		}
		if synctest.Wait(); len(heard) > 0 {
			t.Fatal("the same wish is heard twice, want an orderly stop")
		}
		time.Sleep(again)
		received <- syscall.SIGINT
		if !<-heard {
			t.Error("a second signal is not heard")
		}
	})
}

// A second signal, once it counts as one, ends the process at once.
func TestASecondSignal(t *testing.T) {
	var log buffer
	exited := make(chan int, 1)
	sys := System{Stderr: &log, Exit: func(code int) { exited <- code }}
	logger, err := newLogger(&sys, defaultLog)
	if err != nil {
		t.Fatal(err)
	}
	late := make(chan os.Signal, 1) // a signal without a handler would end the test
	signal.Notify(late, syscall.SIGTERM)
	defer signal.Stop(late)
	s := watchSignals(&sys, logger)
	defer s.ignore()
	send(t, syscall.SIGINT)
	<-s.asked
	for deadline := time.Now().Add(time.Minute); len(exited) == 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a minute has passed since the second signal, want Exit")
		}
		send(t, syscall.SIGTERM)
	}
	if code := <-exited; code != exitFailed {
		t.Errorf("Exit(%d) at the second signal, want %d", code, exitFailed)
	}
}

// A port that is taken is a wrong configuration, with the flag to change, and is said
// once, wherever logs go.
func TestServeOnATakenPort(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file := filepath.Join(t.TempDir(), "log")
	for _, more := range [][]string{nil, {"--log-level", "fatal"}, {"--log-outputs", file}} {
		args := append([]string{"--data-dir", t.TempDir(), "--listen-client-urls", "http://" + l.Addr().String(), "--listen-peer-urls", "http://" + free(t)}, more...)
		code, _, stderr := kvnode(args...)
		if code != exitUsage || strings.Count(stderr, "--listen-client-urls http://"+l.Addr().String()+": the port is taken") != 1 {
			t.Errorf("kvnode on a taken port, %q = %d %s, want 2 and the flag once", more, code, stderr)
		}
	}
	if data, err := os.ReadFile(file); err != nil || strings.Count(string(data), "the port is taken") != 1 {
		t.Errorf("the log's file has %s, %v, want it there once, too", data, err)
	}
}

// What ends a member is said once, wherever logs go.
func TestAFailureIsSaidOnce(t *testing.T) {
	dir := t.TempDir()
	sound := func(args ...string) []string {
		return append([]string{
			"--data-dir", filepath.Join(dir, "data"), "--listen-client-urls", "http://" + free(t), "--listen-peer-urls", "http://" + free(t),
			"--initial-advertise-peer-urls", "http://127.0.0.1:1",
		}, args...)
	}
	s := &served{t: t, exited: make(chan int, 1)}
	args := sound()
	go func() {
		s.exited <- run(System{Args: args, Stdout: &s.stderr, Stderr: &s.stderr, Exit: func(int) {}})
	}()
	s.says("ready to serve client requests")
	send(t, syscall.SIGTERM)
	s.exits(exitOK)

	// Something that is found when the member opens its data, and not before.
	if err := os.WriteFile(filepath.Join(dir, "data", "store.db"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "log")
	for _, more := range [][]string{nil, {"--log-level", "fatal"}, {"--log-outputs", file}, {"--log-outputs", "stderr," + file + "2"}} {
		code, _, stderr := kvnode(sound(more...)...)
		if n := strings.Count(stderr, "store.db"); code != exitFailed || n != 1 {
			t.Errorf("kvnode with a damaged store, %q = %d, which names it %d times, want 1 and once: %s", more, code, n, stderr)
		}
	}
	if data, err := os.ReadFile(file); err != nil || strings.Count(string(data), "store.db") != 1 {
		t.Errorf("the log's file has %s, %v, want it there once, too", data, err)
	}
}

// --validate names what will have no effect, as serve does.
func TestValidateWarns(t *testing.T) {
	var out, errs buffer
	code := run(System{
		Args:    strings.Fields("serve --validate --max-wals 7 --data-dir " + t.TempDir() + anyPorts),
		Environ: []string{"ETCD_DATA_DIRR=/x"},
		Stdout:  &out, Stderr: &errs, Exit: func(int) {},
	})
	if code != exitOK || !strings.Contains(errs.String(), "ETCD_DATA_DIRR is no setting of kvnode and has no effect; did you mean ETCD_DATA_DIR?") || !strings.Contains(errs.String(), "--max-wals") ||
		out.String() != "the configuration is valid\n" {
		t.Errorf("serve --validate = %d %q %q, want both warnings and that it is valid", code, out.String(), errs.String())
	}
}

// A member that was removed ends with exit code 0, wherever its log goes: a unit with
// Restart=on-failure must not start it again.
func TestARemovedMemberExitsWithZero(t *testing.T) {
	for _, cfg := range []settings.Log{{}, {Outputs: []string{"stdout"}}} {
		if err := reported(nil, cfg); err != nil {
			t.Errorf("with the log in %q: %v, want no error", cfg.Outputs, err)
		}
		if err := reported(io.ErrUnexpectedEOF, cfg); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("with the log in %q: %v, want the error", cfg.Outputs, err)
		}
	}
}
