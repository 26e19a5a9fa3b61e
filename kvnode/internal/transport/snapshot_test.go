package transport

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/internal/memlink"
)

func randomBytes(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// A snapshot of any size arrives whole, and its state is closed once.
func TestSnapshotsArrive(t *testing.T) {
	for _, size := range []int{0, 1, maxChunk - 1, maxChunk, maxChunk + 1, 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			_, a, b := pair(t)
			state := &testState{data: randomBytes(size)}
			a.SendSnapshot(snapOf(1, 2, 9), state)
			time.Sleep(3 * time.Second)
			if got := a.snapshotResults(); len(got) != 1 || got[0] != nil {
				t.Fatalf("SnapshotSent() of %d bytes got %v, want nil", size, got)
			}
			if got := b.states(); len(got) != 1 || !bytes.Equal(got[0], state.data) {
				t.Errorf("state of %d bytes did not arrive as it was", size)
			}
			if n := len(state.closes()); n != 1 {
				t.Errorf("state was closed %d times, want 1", n)
			}
			if p := b.peerOf(t, 1); p.Streams[snapshots].Received != 1 || p.Streams[snapshots].ReceivedBytes < uint64(size) {
				t.Errorf("Peers() = %+v, want 1 snapshot of %d bytes", p, size)
			}
		})
	}
}

// If any byte of a snapshot changes on the way, the snapshot fails at both ends, and
// the receiver's node never reads a damaged state to its end.
func TestDamagedSnapshotsAreRefused(t *testing.T) {
	const size = 300
	total := wireLength(t, size)
	for at := range total {
		synctest.Test(t, func(t *testing.T) {
			net, a, b := pair(t, func(_ *Config, lim *limits) { lim.stall = time.Second })
			settled()
			seen := 0
			net.Damage("n1", "n2", func(p []byte) {
				if at >= seen && at < seen+len(p) {
					p[at-seen] ^= 0x10
				}
				seen += len(p)
			})
			a.SendSnapshot(snapOf(1, 2, 9), &testState{data: randomBytes(size)})
			synctest.Wait()
			net.Damage("n1", "n2", nil)
			time.Sleep(7 * time.Second)
			if got := a.snapshotResults(); len(got) != 1 || got[0] == nil {
				t.Fatalf("SnapshotSent() with byte %d damaged got %v, want an error", at, got)
			}
			if n := len(b.states()); n != 0 {
				t.Fatalf("a snapshot with byte %d damaged was taken", at)
			}
		})
	}
}

// wireLength returns the number of bytes that the sender of a snapshot writes.
func wireLength(t *testing.T, size int) (n int) {
	synctest.Test(t, func(t *testing.T) {
		net, a, _ := pair(t)
		settled()
		net.Damage("n1", "n2", func(p []byte) { n += len(p) })
		a.SendSnapshot(snapOf(1, 2, 9), &testState{data: randomBytes(size)})
		synctest.Wait()
		net.Damage("n1", "n2", nil)
	})
	return n
}

// A reader that reads exactly the announced size gets an error for damaged bytes.
func TestLastChunkWaitsForTheSums(t *testing.T) {
	var wire bytes.Buffer
	data := randomBytes(3*maxChunk + 5)
	w := newChunkWriter(&wire, int64(len(data)))
	must(w.begin())
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	must(w.end())
	b := wire.Bytes()
	b[len(b)-1] ^= 1 // of SHA-256
	r, size, err := newChunkReader(bytes.NewReader(b))
	if err != nil || size != int64(len(data)) {
		t.Fatalf("newChunkReader() = %d, %v, want %d", size, err, len(data))
	}
	got := make([]byte, size)
	n, err := io.ReadFull(r, got)
	if err == nil || !strings.Contains(err.Error(), "SHA-256") || n != 3*maxChunk {
		t.Errorf("ReadFull() = %d, %v, want all but the last chunk and a wrong SHA-256", n, err)
	}
	if r.finished() {
		t.Error("finished() = true for a damaged state")
	}
}

// SnapshotSent gets the error of either end, with the receiver's text if there is
// one.
func TestSnapshotsThatFail(t *testing.T) {
	for _, c := range []struct {
		name     string
		state    *testState
		m        *raftpb.Message
		snapshot func(*raftpb.Message, int64, io.Reader) error
		during   func(net *memlink.Network, a, b *fakeNode)
		want     string
	}{
		{name: "the disk is full", snapshot: func(_ *raftpb.Message, _ int64, r io.Reader) error {
			_, _ = io.CopyN(io.Discard, r, 10)
			return errors.New("disk is full")
		}, want: "receive snapshot: disk is full"},
		{name: "the receiver reads only half", snapshot: func(_ *raftpb.Message, n int64, r io.Reader) error {
			_, err := io.CopyN(io.Discard, r, n/2)
			return err
		}, want: "not read to its end"},
		{name: "the state is shorter than it says", state: &testState{data: make([]byte, 10), size: 11}, want: "after 10 of the 11 bytes"},
		{name: "the state is longer than it says", state: &testState{data: make([]byte, 10), size: 9}, want: "longer than the 9 bytes"},
		{name: "the state cannot be read", state: &testState{data: make([]byte, 10), err: errors.New("bad sector")}, want: "bad sector"},
		{name: "the metadata is invalid", m: func() *raftpb.Message {
			m := snapOf(1, 2, 9)
			m.GetSnapshot().GetMetadata().ConfState = voters(1, 3)
			return m
		}(), want: "does not include member 2"},
		{name: "it is no snapshot", m: heartbeat(1, 2, 1), want: "MsgHeartbeat is not a snapshot"},
		{name: "the peer is not known", m: snapOf(1, 7, 9), want: "member 7 is not a peer"},
		{name: "the peer is removed", during: func(_ *memlink.Network, a, _ *fakeNode) { a.RemovePeer(2) }, want: "peer was removed"},
		{name: "the connection breaks", during: func(net *memlink.Network, _, _ *fakeNode) { net.Reset("n1", "n2") }, want: "connection reset"},
		{name: "the network stalls", during: func(net *memlink.Network, _, _ *fakeNode) { net.Cut("n1", "n2") }, want: "30s"},
		{name: "the receiver stops", during: func(_ *memlink.Network, _, b *fakeNode) { _ = b.Close() }, want: ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := memlink.New()
				a := startNode(t, net, &fakeNode{id: 1})
				b := startNode(t, net, &fakeNode{id: 2, snapshot: c.snapshot})
				connectAll(a, b)
				settled()
				state, m := c.state, c.m
				if state == nil {
					state = &testState{data: randomBytes(1 << 20)}
				}
				if m == nil {
					m = snapOf(1, 2, 9)
				}
				if c.during != nil {
					state.pause = time.Second
				}
				a.SendSnapshot(m, state)
				if c.during != nil {
					time.Sleep(2 * time.Second)
					c.during(net, a, b)
				}
				time.Sleep(40 * time.Second)
				got := a.snapshotResults()
				if len(got) != 1 || got[0] == nil || !strings.Contains(got[0].Error(), c.want) {
					t.Errorf("SnapshotSent() got %v, want one error with %q", got, c.want)
				}
				if n := len(state.closes()); n != 1 {
					t.Errorf("state was closed %d times, want 1", n)
				}
				if len(b.states()) != 0 {
					t.Error("the snapshot was taken")
				}
			})
		})
	}
}

// The sender closes the state after the last byte, even if the receiver takes
// minutes to make it durable. Heartbeats arrive meanwhile. A second snapshot fails.
func TestSlowReceiverHoldsUpNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := memlink.New()
		a := startNode(t, net, &fakeNode{id: 1})
		b := startNode(t, net, &fakeNode{id: 2, snapshot: func(_ *raftpb.Message, _ int64, r io.Reader) error {
			_, err := io.Copy(io.Discard, r)
			time.Sleep(3 * time.Minute)
			return err
		}})
		connectAll(a, b)
		settled()
		began := time.Now()
		state := &testState{data: randomBytes(1 << 20)}
		a.SendSnapshot(snapOf(1, 2, 9), state)
		time.Sleep(time.Second)
		if c := state.closes(); len(c) != 1 || c[0].Sub(began) > time.Second {
			t.Errorf("state was closed at %v, want within a second of %v", c, began)
		}
		send(a, heartbeat(1, 2, 1), appendOf(1, 2, 1, nil))
		synctest.Wait()
		if n := len(b.messages()); n != 2 {
			t.Errorf("%d messages arrived beside a snapshot, want 2", n)
		}
		second := &testState{data: []byte("x")}
		a.SendSnapshot(snapOf(1, 2, 10), second)
		synctest.Wait()
		if got := a.snapshotResults(); len(got) != 1 || got[0] == nil || !strings.Contains(got[0].Error(), "under way") {
			t.Errorf("second SendSnapshot() gave %v, want one under way", got)
		}
		if len(second.closes()) != 1 {
			t.Error("state of the second snapshot is still open")
		}
		time.Sleep(3 * time.Minute)
		if got := a.snapshotResults(); len(got) != 2 || got[1] != nil {
			t.Errorf("SnapshotSent() got %v, want nil at last", got)
		}
	})
}

// Close ends a snapshot at once.
func TestCloseEndsASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _ := pair(t)
		settled()
		state := &testState{data: make([]byte, 10<<20), pause: 100 * time.Millisecond}
		a.SendSnapshot(snapOf(1, 2, 10), state)
		time.Sleep(time.Second)
		began := time.Now()
		if err := a.Close(); err != nil || time.Since(began) > time.Second {
			t.Errorf("Close() = %v after %v, want nil at once", err, time.Since(began))
		}
		if got := a.snapshotResults(); len(got) != 1 || !errors.Is(got[0], errClosed) {
			t.Errorf("SnapshotSent() after Close() got %v, want %v", got, errClosed)
		}
		a.SendSnapshot(snapOf(1, 2, 11), state)
		if n := len(state.closes()); n != 2 {
			t.Errorf("state was closed %d times, want once per snapshot", n)
		}
	})
}

// SnapshotSent gets an error for a MsgSnap that is passed to Send, because raft
// waits for a result.
func TestSnapshotThroughSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _ := pair(t)
		send(a, snapOf(1, 2, 9))
		synctest.Wait()
		if got := a.snapshotResults(); len(got) != 1 || got[0] == nil {
			t.Errorf("SnapshotSent() got %v, want an error", got)
		}
	})
}
