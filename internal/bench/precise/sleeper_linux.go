package precise

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Sleeper is for one goroutine.
type Sleeper struct {
	fd   int
	file *os.File // in the runtime's poller, so that waiting blocks no thread
	buf  [8]byte
}

// New returns a Sleeper, which Close ends.
func New() (*Sleeper, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("precise: create a timer: %w", err)
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
