package leaderlease

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/leaderlease/go/leaderlease/core"
)

// logged returns what is in log once every line is written.
func (p *puppet) logged(log *strings.Builder) string {
	p.mu.Lock()
	written := p.mu.log.written
	p.mu.Unlock()
	if written != nil {
		<-written
	}
	return log.String()
}

// sink is a slog.Handler that blocks until it is opened. It keeps the lines.
type sink struct {
	opened chan struct{}
	mu     sync.Mutex
	lines  []string
}

func blockedSink() *sink { return &sink{opened: make(chan struct{})} }

func (s *sink) Enabled(context.Context, slog.Level) bool { return true }
func (s *sink) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s *sink) WithGroup(string) slog.Handler            { return s }

func (s *sink) Handle(_ context.Context, r slog.Record) error {
	<-s.opened
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %v", a)
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
	return nil
}

// With a handler that blocks for ever each kind of line is written, and each method
// returns, Close after closeLogWait.
func TestABlockedLogHandlerStopsNoMethod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := blockedSink()
		p := leading(t, func(c *Config) { c.Logger = slog.New(s) }) // gained
		if _, err := p.Read(t.Context()); err != nil {
			t.Errorf("Read() = %v, want it served", err)
		}
		p.clock.Advance(time.Second)
		if !p.Tick() { // lost
			t.Error("Tick() = false, want true")
		}
		p.renew() // gained
		p.clock.marker.Add(1)
		if got := p.Info().Status; got != core.ClockFault { // disrupted
			t.Errorf("Info() = %v after a disruption, want %v", got, core.ClockFault)
		}
		p.clock.Advance(-ms)
		p.Ready(raft.Ready{}) // went backwards
		p.clock.Advance(time.Second)
		p.renew()
		waits := p.startRead()
		p.commitNew()
		p.startRead()
		for range 2 * p.cfg.Raft.ElectionTick {
			p.Tick() // reads wait for Applied
		}
		if waits.calls != 1 || waits.err != nil {
			t.Errorf("StartRead() called done %d times with %v, want once", waits.calls, waits.err)
		}
		p.Applied(p.last + 1) // misuse
		if p.Info().Err == nil {
			t.Error("Info().Err = nil after a misuse")
		}
		begun := time.Now()
		if p.Close(); time.Since(begun) != closeLogWait {
			t.Errorf("Close() took %v, want %v", time.Since(begun), closeLogWait)
		}
		close(s.opened)
		synctest.Wait()
		want := []string{"lease gained", "lease lost", "clock disrupted", "the clock went backwards", "reads wait", "misuse"}
		for _, w := range want {
			if !strings.Contains(strings.Join(s.lines, "\n"), w) {
				t.Errorf("no line %q in %q", w, s.lines)
			}
		}
	})
}

// Close gives a handler that works all lines, in order.
func TestCloseWaitsForTheLastLogLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := blockedSink()
		p := leading(t, func(c *Config) { c.Logger = slog.New(s) })
		time.AfterFunc(closeLogWait/2, func() { close(s.opened) })
		p.Close()
		want := []string{"lease gained term=2", "lease lost term=2 reason=closed"}
		if got := fmt.Sprint(s.lines); got != fmt.Sprint(want) {
			t.Errorf("lines at the end of Close: %s, want %s", got, want)
		}
	})
}

// Lines that a blocked handler has no room for are dropped, and the next line says how
// many.
func TestLogLinesBeyondTheLimitAreDroppedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := blockedSink()
		p := newPuppet(t, func(c *Config) { c.Logger = slog.New(s) })
		log := func(i int) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.logLocked(slog.LevelInfo, "line", "i", i)
		}
		const dropped = 3
		log(0)
		synctest.Wait() // the handler has it
		for i := range maxLogLines + dropped {
			log(i + 1)
		}
		close(s.opened)
		synctest.Wait()
		log(100)
		log(101)
		synctest.Wait()
		if n := len(s.lines); n != 1+maxLogLines+2 {
			t.Fatalf("%d lines, want %d", n, 1+maxLogLines+2)
		}
		last := s.lines[len(s.lines)-3:]
		want := []string{fmt.Sprintf("line i=%d", maxLogLines), fmt.Sprintf("line i=100 dropped_lines=%d", dropped), "line i=101"}
		if fmt.Sprint(last) != fmt.Sprint(want) {
			t.Errorf("last lines: %q, want %q", last, want)
		}
	})
}

// The handler is called without a lock, so it may call the Lease.
func TestLogHandlersMayCallTheLease(t *testing.T) {
	h := &callingHandler{Handler: slog.DiscardHandler}
	p := newPuppet(t, func(c *Config) { c.Logger = slog.New(h) })
	h.lease.Store(p.Lease)
	p.lead(2)
	p.renew()
	p.Close()
	if h.calls.Load() != 2 {
		t.Errorf("the handler was called %d times, want twice", h.calls.Load())
	}
}

type callingHandler struct {
	slog.Handler
	lease atomic.Pointer[Lease]
	calls atomic.Int64
}

func (h *callingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *callingHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }

func (h *callingHandler) Handle(context.Context, slog.Record) error {
	h.lease.Load().Info()
	h.lease.Load().Tick()
	h.calls.Add(1)
	return nil
}
