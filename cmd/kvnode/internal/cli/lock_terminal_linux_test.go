package cli

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Ctrl-C reaches a command in the foreground of a terminal without kvnode lock. Twice, it ends many at once.
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

// tellSignals prints what comes, until so many SIGTERMs have.
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

// terminal opens one: what is written to ours is typed, and a process reads it from theirs.
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
