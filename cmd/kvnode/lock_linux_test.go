package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// kvnode lock forwards signals to its command, which would otherwise go on without the lock. If a
// signal ends the command, the exit code is what a shell reports.
func TestSignalsOfALock(t *testing.T) {
	ours := make(chan os.Signal, 1)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTERM} {
		signal.Notify(ours, s) // or the signal ends this process if it has no other handler
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var errs buffer
		exited := make(chan error, 1)
		lost := make(chan struct{})
		go func() {
			exited <- runLocked(t.Context(), lost, []string{"sh", "-c", "trap 'exit 9' TERM HUP QUIT; echo up; while :; do sleep 0.01; done"}, os.Environ(), &System{Stdout: w, Stderr: &errs})
		}()
		if line, err := bufio.NewReader(r).ReadString('\n'); line != "up\n" {
			t.Fatal(line, err, errs.String())
		}
		unheard := time.AfterFunc(time.Minute, func() { close(lost) })
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		if err := <-exited; err == nil || !strings.Contains(err.Error(), "exit status 9") {
			t.Errorf("after %v the command ends with %v, want the 9 with which it does that", s, err)
		}
		unheard.Stop()
		signal.Reset(s)
		_, _ = r.Close(), w.Close()
	}
}

// A command killed by a signal has the exit code that shells report, and the error blames no member.
func TestALockedCommandThatIsKilled(t *testing.T) {
	one(t, func(addr string) {
		code, _, stderr := kvnode("lock", "l", "--endpoints", addr, "--", "sh", "-c", "kill -9 $$")
		if code != 128+9 || stderr != "sh: signal: killed\n" {
			t.Errorf("kvnode lock = %d %q, want 137 and the signal", code, stderr)
		}
	})
}

// A command dies with the kvnode lock process that holds its lock.
func TestALockedCommandEndsWithItsHolder(t *testing.T) {
	if os.Getenv("KVNODE_TEST_HOLDER") != "" {
		_ = runLocked(t.Context(), nil, []string{"sh", "-c", "echo up; exec sleep 300"}, []string{"PATH=" + os.Getenv("PATH")}, &System{Stdout: os.Stdout, Stderr: os.Stderr})
		return
	}
	holder := exec.Command(os.Args[0], "-test.run=^TestALockedCommandEndsWithItsHolder$")
	holder.Env = append(os.Environ(), "KVNODE_TEST_HOLDER=1")
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	says := bufio.NewReader(out)
	if line, err := says.ReadString('\n'); line != "up\n" {
		t.Fatal(line, err)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, says) // until the command has closed it, too
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the command goes on without the lock")
	}
	_ = holder.Wait()
}

// A background job of a script ignores SIGINT, and so must its command.
func TestWhatWasIgnoredStaysSo(t *testing.T) {
	if os.Getenv("KVNODE_TEST_IGNORES") != "" {
		_, stop := untilInterrupted(t.Context())
		defer stop()
		if got := passedOn(); !signal.Ignored(os.Interrupt) || slices.Contains(got, os.Interrupt) {
			t.Errorf("passedOn() = %v, SIGINT ignored: %v, want it to be ignored as from the start", got, signal.Ignored(os.Interrupt))
		}
		return
	}
	script := exec.Command("sh", append([]string{"-c", `trap '' INT; exec "$@"`, "sh"}, itself(t)...)...)
	script.Env = append(os.Environ(), "KVNODE_TEST_IGNORES=1")
	if out, err := script.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// If a signal arrives just before the command starts, the command does not start.
func TestALockThatIsInterruptedRunsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out buffer
	err := runLocked(ctx, nil, []string{"echo", "began"}, os.Environ(), &System{Stdout: &out, Stderr: &out})
	if !errors.Is(err, errReported) || out.String() != "" {
		t.Errorf("runLocked() = %v after %q, want nothing to begin", err, out.String())
	}
}

// The terminal sends Ctrl-C to the command itself. A second copy would abort many programs at once.
func TestCtrlCIsToldOnce(t *testing.T) {
	const times = 5 // signals that come at the same moment are one
	switch os.Getenv("KVNODE_TEST_TERMINAL") {
	case "command":
		tellSignals(times)
		os.Exit(9)
	case "holder":
		err := runLocked(t.Context(), nil, itself(t), append(os.Environ(), "KVNODE_TEST_TERMINAL=command"), &System{Stdout: os.Stdout, Stderr: os.Stderr})
		if err == nil || err.Error() != os.Args[0]+": exit status 9" {
			t.Error(err)
		}
		return
	}
	ours, theirs := terminal(t)
	holder := exec.Command(os.Args[0], itself(t)[1:]...)
	holder.Env, holder.Stdin, holder.Stderr = append(os.Environ(), "KVNODE_TEST_TERMINAL=holder"), theirs, os.Stderr
	holder.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Process.Kill() })
	says := bufio.NewScanner(out)
	want := func(line string) {
		t.Helper()
		if says.Scan(); says.Text() != line {
			t.Fatalf("the command says %q, want %q", says.Text(), line)
		}
	}
	want("up")
	for range times {
		if _, err := ours.WriteString("\x03"); err != nil {
			t.Fatal(err)
		}
		want("interrupt")
		if err := holder.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		want("terminated") // and no second interrupt, which would have been passed on before it
	}
	for says.Scan() { // until it has ended
	}
	if err := holder.Wait(); err != nil {
		t.Error(err)
	}
}

// tellSignals prints signals as they arrive, and returns after the given number of SIGTERMs.
func tellSignals(times int) {
	heard := make(chan os.Signal, 100)
	signal.Notify(heard, os.Interrupt, syscall.SIGTERM)
	_, _ = os.Stdout.WriteString("up\n")
	for ends := 0; ends < times; {
		s := <-heard
		_, _ = os.Stdout.WriteString(s.String() + "\n")
		if s == syscall.SIGTERM {
			ends++
		}
	}
}

// itself is a command line that runs this test alone.
func itself(t *testing.T) []string { return []string{os.Args[0], "-test.run=^" + t.Name() + "$"} }

// terminal opens a pseudo-terminal. Writes to ours are input for a process that reads theirs.
func terminal(t *testing.T) (ours, theirs *os.File) {
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	number, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		theirs, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = theirs.Close() })
	return ours, theirs
}
