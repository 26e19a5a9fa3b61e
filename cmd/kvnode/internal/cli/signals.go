package cli

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// again is how long further signals count as the first: a terminal tells the
// whole group of processes, and a wrapper among them tells us once more.
const again = 300 * time.Millisecond

// signals turns the first signal into a wish and the second into an end.
type signals struct {
	asked chan struct{} // closed by the first
	stop  chan struct{}
	done  chan struct{}
}

func watchSignals(sys *System, log *processLog) *signals {
	s := &signals{asked: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{})}
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		defer close(s.done)
		defer signal.Stop(received)
		if !s.wait(received, 0) {
			return
		}
		log.Info("asked to stop")
		close(s.asked)
		if s.wait(received, again) {
			log.Warn("asked to stop again: ending at once")
			log.close()
			sys.Exit(exitFailed)
		}
	}()
	return s
}

// wait reports whether a signal came, after deaf has passed.
func (s *signals) wait(received <-chan os.Signal, deaf time.Duration) bool {
	for began := time.Now(); ; {
		select {
		case <-received:
			if time.Since(began) >= deaf {
				return true
			}
		case <-s.stop:
			return false
		}
	}
}

// ignore ends the watch.
func (s *signals) ignore() {
	close(s.stop)
	<-s.done
}
