package load

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Sleeper sleeps to within some tens of microseconds, for one goroutine.
//
// The Go runtime's timers are late by up to a millisecond in a process that is
// otherwise idle: on Linux it waits in epoll_wait, with timeouts in whole
// milliseconds. A benchmark that injects a round trip of 0.2 ms, or sends a
// request each millisecond, would measure that instead.
type Sleeper struct {
	fd   int
	file *os.File // in the runtime's poller, so that waiting blocks no thread
	buf  [8]byte
}

// NewSleeper returns a Sleeper, which Close ends.
func NewSleeper() (*Sleeper, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("load: create a timer: %w", err)
	}
	return &Sleeper{fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}, nil
}

// Sleep returns after d, at once unless d is positive.
func (s *Sleeper) Sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
	if err := unix.TimerfdSettime(s.fd, 0, &spec, nil); err != nil {
		time.Sleep(d) // late is better than not at all
		return
	}
	if _, err := s.file.Read(s.buf[:]); err != nil {
		return // closed meanwhile
	}
}

// Close ends a Sleep that is under way.
func (s *Sleeper) Close() error { return s.file.Close() }
