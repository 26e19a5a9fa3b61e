package floodgate

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaderlease/go/internal/flood"
)

// Whoever asks and is answered goes on at full speed, whatever its habits.
func TestClientsThatAreServedNeverWait(t *testing.T) {
	for name, round := range map[string]func(s *session, id uint32) []byte{
		"requests": func(s *session, id uint32) []byte {
			s.send(answer(id))
			return request(id)
		},
		"two in three are reset unanswered": func(s *session, id uint32) []byte {
			if id%3 != 0 {
				return append(request(id), reset(id)...)
			}
			s.send(answer(id))
			return request(id)
		},
		"streams that are reset when they are answered": func(s *session, id uint32) []byte {
			s.send(raw(frameHeaders, 4, id, 14), raw(frameData, 0, id, 40))
			return append(append(flood.Open(nil, id, method), raw(frameData, 0, id, 20)...), reset(id)...)
		},
		"a window update and an empty end with each": func(s *session, id uint32) []byte {
			s.send(raw(frameHeaders, 4|flagEndStream, id, 24)) // an error
			b := append(flood.Open(nil, id, method), raw(frameWindowUpdate, 0, id, 4, 0, 0, 0, 1)...)
			return append(append(b, raw(frameData, 0, id, 8)...), raw(frameData, flagEndStream, id, 0)...)
		},
		"large values": func(s *session, id uint32) []byte {
			s.send(answer(id), raw(frameWindowUpdate, 0, 0, 4, 0, 0, 0, 1))
			b := flood.Open(nil, id, method)
			for range 2 {
				b = append(b, raw(frameData, 0, id, 600)...)
			}
			return append(b, raw(frameData, flagEndStream, id, 100)...)
		},
		"a large answer with a window update and a ping for each part": func(s *session, id uint32) []byte {
			b := request(id)
			s.send(answer(id))
			for range 2 {
				s.send(raw(frameData, 0, id, 600), raw(frameData, 0, id, 600))
				b = append(append(b, raw(frameWindowUpdate, 0, id, 4, 0, 0, 0, 1)...), raw(framePing, 0, 0, 8)...)
			}
			return b
		},
		"keep-alives of one stream": func(s *session, id uint32) []byte {
			s.send(raw(frameData, 0, 1, 30))
			return raw(frameData, 0, 1, 15)
		},
		"keep-alives of one stream, and both ends measure the path": func(s *session, id uint32) []byte {
			s.send(raw(framePing, flagAck, 0, 8), raw(framePing, 0, 0, 8), raw(frameData, 0, 1, 30))
			b := append(raw(framePing, flagAck, 0, 8), raw(framePing, 0, 0, 8)...)
			return append(b, raw(frameData, 0, 1, 15)...)
		},
		"deadlines that pass": func(s *session, id uint32) []byte {
			if id > 401 { // 200 at a time
				s.send(reset(id - 400)) // the server's own
				time.Sleep(5 * time.Millisecond)
				return append(request(id), reset(id-400)...)
			}
			return request(id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := New(quiet(), 1<<20)
				s := connect(t, g)
				began := time.Now()
				id := uint32(1)
				for ; id < 12_000; id += 2 {
					if err := s.receive(round(s, id)); err != nil {
						t.Fatalf("after stream %d: %v", id, err)
					}
				}
				slept := time.Duration(0)
				if name == "deadlines that pass" {
					slept = 5 * time.Millisecond * 5_799
				}
				if waited := time.Since(began) - slept; waited > 0 {
					t.Errorf("the client has waited for %v, want not at all", waited)
				}
				if got := g.Counts().Closed; got != 0 {
					t.Errorf("%d connections were closed, want none", got)
				}
			})
		})
	}
}

// Each flood ends, before it has cost much.
func TestFloodsAreClosed(t *testing.T) {
	for _, kind := range flood.Kinds {
		switch kind.Name {
		case "open", "request", "gets on streams", "reset by a wrong frame":
			continue // whoever serves it has to refuse such streams, or to reset them
		}
		t.Run(kind.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				g := New(slog.New(slog.NewTextHandler(&log, nil)), 1<<20)
				s := connect(t, g)
				began := time.Now()
				var b []byte
				id, rounds := uint32(1), 0
				var err error
				for ; err == nil && rounds < 100_000; rounds += 10 {
					b, id = kind.Rounds(nil, id, method, 10)
					err = s.receive(b)
				}
				most := maxDebt + startCredit + 2*10
				if kind.Name == "crumbs" {
					most = crumbsPerFrame * (maxDebt + startCredit + 10)
				}
				if !errors.Is(err, ErrFlood) || rounds > most {
					t.Errorf("after %d rounds: %v, want ErrFlood within %d", rounds, err, most)
				}
				if !s.closed.Load() {
					t.Error("the connection is open, want it closed")
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %v, want at most a second", took)
				}
				if got := g.Counts(); got.Closed != 1 || got.Frames == 0 {
					t.Errorf("Counts() = %+v, want one connection and its frames", got)
				}
				if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "192.0.2.1:4") {
					t.Errorf("the log is %q, want one line with the address", got)
				}
			})
		})
	}
}

// A stream is young until half a second has passed, however much is read
// meanwhile.
func TestResetsOfYoungStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := connect(t, New(quiet(), 1<<20))
		var err error
		id := uint32(1)
		for ; err == nil && id < 10_000; id += 2 {
			if err = s.receive(request(id)); err == nil {
				err = s.receive(reset(id))
			}
		}
		if !errors.Is(err, ErrFlood) {
			t.Errorf("after %d streams: %v, want ErrFlood", id/2, err)
		}
	})
}

// Nobody answers, and the deadlines of all that a client has asked pass at once,
// again and again. It is slowed down at most.
func TestDeadlinesThatPassAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := connect(t, New(quiet(), 1<<20))
		for id := uint32(1); id < 10_000; id += 2 * 250 {
			var asked, gone []byte
			for i := range uint32(250) {
				asked, gone = append(asked, request(id+2*i)...), append(gone, reset(id+2*i)...)
			}
			if err := s.receive(asked); err != nil {
				t.Fatal(err)
			}
			time.Sleep(young)
			if err := s.receive(gone); err != nil {
				t.Fatalf("after stream %d: %v", id, err)
			}
		}
	})
}

// What the server has to reset, because the client has broken a rule, counts as
// what the client resets.
func TestWhatTheServerResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := connect(t, New(quiet(), 1<<20))
		var err error
		id := uint32(1)
		for ; err == nil && id < 10_000; id += 2 {
			err = s.receive(request(id))
			s.send(raw(frameReset, 0, id, 4, 0, 0, 0, 1))
		}
		if !errors.Is(err, ErrFlood) || id/2 > maxDebt+startCredit+10 {
			t.Errorf("after %d streams: %v, want ErrFlood", id/2, err)
		}
	})
}

// However many connections flood, they get what is allowed to all together, and
// whoever has credit does not notice.
func TestConnectionsShareOneAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(quiet(), 1<<20)
		served := connect(t, g)
		for id := uint32(1); id < 400; id += 2 {
			served.send(answer(id))
			if err := served.receive(request(id)); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		pings := bytes.Repeat(raw(framePing, 0, 0, 8), startCredit+600)
		for i, want := range []time.Duration{0, 40 * time.Millisecond} {
			if err := connect(t, g).receive(pings); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(began); got < want || got > want+2*time.Millisecond {
				t.Errorf("flood %d is through after %v, want %v", i, got, want)
			}
		}
		began = time.Now()
		if err := served.receive(bytes.Repeat(raw(framePing, 0, 0, 8), 300)); err != nil || time.Since(began) > 0 {
			t.Errorf("who was answered waits for %v, %v, want not at all", time.Since(began), err)
		}
	})
}

// Who would have to wait too long is closed, though its own debts are small.
func TestTheQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(quiet(), 1<<20)
		const floods = 20
		done := make(chan error, floods)
		for range floods {
			s := connect(t, g)
			go func() { done <- s.receive(bytes.Repeat(raw(framePing, 0, 0, 8), startCredit+600)) }()
		}
		closed := 0
		for range floods {
			if err := <-done; errors.Is(err, ErrFlood) {
				closed++
			}
		}
		// Those that are not have their turn within maxWait, 4 KiB of PING at a time.
		const turns = (burst + perSecond*3/10) / (denseRead / 17)
		if open := floods - closed; open == 0 || open > turns+1 {
			t.Errorf("%d of %d go on, want at most %d", open, floods, turns+1)
		}
	})
}

// Debts are forgiven with time.
func TestDebtsAreForgiven(t *testing.T) {
	for pause, want := range map[time.Duration]error{0: ErrFlood, 18 * time.Second: nil} {
		synctest.Test(t, func(t *testing.T) {
			s := connect(t, New(quiet(), 1<<20))
			pings := bytes.Repeat(raw(framePing, 0, 0, 8), 900)
			if err := s.receive(pings); err != nil {
				t.Fatal(err)
			}
			time.Sleep(pause)
			if err := s.receive(pings); !errors.Is(err, want) {
				t.Errorf("900 more after %v: %v, want %v", pause, err, want)
			}
		})
	}
}

// Closing a connection ends its wait.
func TestCloseEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(quiet(), 1<<20)
		if err := connect(t, g).receive(bytes.Repeat(raw(framePing, 0, 0, 8), 1_000)); err != nil {
			t.Fatal(err)
		}
		s := connect(t, g)
		began := time.Now()
		done := make(chan error)
		go func() { done <- s.receive(bytes.Repeat(raw(framePing, 0, 0, 8), 1_000)) }()
		synctest.Wait()
		if err := s.c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, net.ErrClosed) || time.Since(began) > 0 {
			t.Errorf("the wait ended after %v with %v, want net.ErrClosed at once", time.Since(began), err)
		}
	})
}

// Short frames are taken a few at a time, long ones as they come.
func TestShortFramesAreTakenInSmallPieces(t *testing.T) {
	s := connect(t, New(quiet(), 1<<20))
	buf := make([]byte, 32<<10)
	read := func() int {
		n, err := s.c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	s.pieces = [][]byte{request(1), bytes.Repeat(raw(frameData, 0, 1, 100), 100), bytes.Repeat(raw(frameData, 0, 1, 16<<10), 4)}
	for i, want := range []int{len(request(1)), denseRead, denseRead, 109*100 - 2*denseRead, denseRead, 32 << 10, 4*(16<<10+9) - denseRead - 32<<10} {
		if got := read(); got != want {
			t.Errorf("read %d has %d bytes, want %d", i, got, want)
		}
	}
}
