package cli

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/leaderlease/go/kvnode/server"
)

// supervised tells systemd how the member is, as a unit of Type=notify expects it: it is ready
// once it serves linearizable reads. With WatchdogSec, systemd also hears at half of that
// interval that the raft loop has turned and that /livez does not fail. The returned function
// tells it that the member stops. Without NOTIFY_SOCKET nothing is sent.
func supervised(srv *server.Server, log *slog.Logger) (stopping func()) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the watchdog's interval cannot be read, so systemd is not told that the member is alive", "error", err)
	}
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		say(log, "STATUS=waiting for a leader")
		watch := watchdog{ticks: func() uint64 { return srv.Node().Status().Late.Count }}
		ready, due := srv.Ready(), make(<-chan time.Time)
		if interval > 0 {
			ticker := time.NewTicker(interval / 2)
			defer ticker.Stop()
			due = ticker.C
		}
		for {
			select {
			case <-ready:
				say(log, daemon.SdNotifyReady+"\nSTATUS=serving")
				ready = nil
			case <-due:
				if watch.turned() && srv.Live(context.Background()) == nil {
					say(log, daemon.SdNotifyWatchdog)
				}
			case <-ended:
				say(log, daemon.SdNotifyStopping+"\nSTATUS=stopping")
				return
			}
		}
	}()
	return func() {
		close(ended)
		<-done
	}
}

// watchdog detects a raft loop that has stopped, for example behind a blocked log output or a disk
// read. Such a member keeps its promise and serves no request. The watchdog ignores slow writes.
type watchdog struct {
	ticks func() uint64 // of the loop, so far
	last  uint64
}

// turned reports whether the loop has ticked since it was asked last.
func (w *watchdog) turned() bool {
	before := w.last
	w.last = w.ticks()
	return w.last != before
}

// say sends a state to systemd, if that asks for it.
func say(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd cannot be told", "state", state, "error", err)
	}
}
