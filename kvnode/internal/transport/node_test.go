package transport

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leaderlease/go/internal/memlink"
)

// fakeNode is a Handler that records all calls.
type fakeNode struct {
	*Transport
	id uint64

	// Optional hooks, set before Start.
	admit    func(Hello) error
	receive  func(*raftpb.Message)
	snapshot func(*raftpb.Message, int64, io.Reader) error

	mu struct {
		sync.Mutex
		received    []*raftpb.Message
		processes   []ProcessID // of received
		died        []death
		snapshots   [][]byte
		sent        []error
		unreachable []time.Time
		gone        []uint64
		connected   []Hello
		refused     []error
	}
}

func (n *fakeNode) Admit(h Hello) error {
	if n.admit != nil {
		return n.admit(h)
	}
	return nil
}

func (n *fakeNode) Refused(peer uint64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.refused = append(n.mu.refused, err)
}

func (n *fakeNode) Connected(peer uint64, h Hello) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.connected = append(n.mu.connected, h)
}

func (n *fakeNode) Receive(m *raftpb.Message, process ProcessID) {
	if n.receive != nil {
		n.receive(m)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.received = append(n.mu.received, m)
	n.mu.processes = append(n.mu.processes, process)
}

func (n *fakeNode) ReceiveSnapshot(m *raftpb.Message, size int64, state io.Reader) error {
	if n.snapshot != nil {
		return n.snapshot(m, size, state)
	}
	b, err := io.ReadAll(state)
	if err != nil {
		return err
	}
	if int64(len(b)) != size {
		return fmt.Errorf("state of %d bytes, want %d", len(b), size)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.snapshots = append(n.mu.snapshots, b)
	return nil
}

func (n *fakeNode) Unreachable(peer uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.unreachable = append(n.mu.unreachable, time.Now())
}

func (n *fakeNode) Gone(peer uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.gone = append(n.mu.gone, peer)
}

func (n *fakeNode) Died(peer uint64, process ProcessID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.died = append(n.mu.died, death{peer, process})
}

// deaths returns the calls of Died, and the process of each received message.
func (n *fakeNode) deaths() (died []death, senders []ProcessID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.mu.died), slices.Clone(n.mu.processes)
}

// goneCalls returns the arguments of Gone.
func (n *fakeNode) goneCalls() []uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.mu.gone)
}

func (n *fakeNode) SnapshotSent(peer uint64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.sent = append(n.mu.sent, err)
}

// messages returns the received messages.
func (n *fakeNode) messages() []*raftpb.Message {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.mu.received)
}

func (n *fakeNode) refusals() []error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.mu.refused)
}

func (n *fakeNode) unreachables() []time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.mu.unreachable)
}

func (n *fakeNode) connections() []Hello {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.mu.connected)
}

func (n *fakeNode) snapshotResults() []error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.mu.sent)
}

func (n *fakeNode) states() [][]byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.mu.snapshots)
}

// peerOf returns the status of one peer.
func (n *fakeNode) peerOf(t *testing.T, id uint64) PeerStatus {
	t.Helper()
	for _, p := range n.Peers() {
		if p.ID == id {
			return p
		}
	}
	t.Fatalf("Peers() of member %d has no member %d", n.id, id)
	return PeerStatus{}
}

const testCluster = 0xc1

func helloOf(id uint64) Hello {
	return Hello{ClusterID: testCluster, From: id, Instance: fmt.Sprint("instance-", id), Name: hostOf(id), Promise: time.Second}
}

func hostOf(id uint64) string { return fmt.Sprint("n", id) }
func addrOf(id uint64) string { return hostOf(id) + ":1" }

// startNode starts n on a network.
func startNode(t *testing.T, net *memlink.Network, n *fakeNode, adjust ...func(*Config, *limits)) *fakeNode {
	t.Helper()
	ln, err := net.Listen(addrOf(n.id))
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Hello: helloOf(n.id), Listener: ln, Handler: n, Dial: net.Dialer(hostOf(n.id))}
	lim := defaultLimits()
	for _, f := range adjust {
		f(&cfg, &lim)
	}
	n.Transport, err = start(cfg, lim)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.stop(t) })
	return n
}

func (n *fakeNode) stop(t *testing.T) {
	if err := n.Close(); err != nil {
		t.Errorf("Close() of member %d: %v", n.id, err)
	}
}

// pair starts two members that are peers of each other.
func pair(t *testing.T, adjust ...func(*Config, *limits)) (net *memlink.Network, a, b *fakeNode) {
	t.Helper()
	net = memlink.New()
	a = startNode(t, net, &fakeNode{id: 1}, adjust...)
	b = startNode(t, net, &fakeNode{id: 2}, adjust...)
	connectAll(a, b)
	return net, a, b
}

func connectAll(nodes ...*fakeNode) {
	for _, n := range nodes {
		for _, p := range nodes {
			if p != n {
				n.SetPeer(p.id, []string{addrOf(p.id)})
			}
		}
	}
}

func heartbeat(from, to, commit uint64) *raftpb.Message {
	return &raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), From: &from, To: &to,
		Term: new(uint64(1)), Commit: &commit,
	}
}

// appendOf is a MsgApp of one entry.
func appendOf(from, to, index uint64, data []byte) *raftpb.Message {
	return &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: &from, To: &to, Term: new(uint64(1)),
		Index: new(index - 1), LogTerm: new(min(index-1, 1)),
		Entries: []*raftpb.Entry{{Index: &index, Term: new(uint64(1)), Data: data}},
	}
}

func snapOf(from, to, index uint64) *raftpb.Message {
	return &raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), From: &from, To: &to, Term: new(uint64(1)),
		Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: &index, Term: new(uint64(1)),
			ConfState: &raftpb.ConfState{Voters: []uint64{1, 2}},
		}},
	}
}

// testState is a State in memory.
type testState struct {
	data   []byte
	size   int64         // claimed; 0 means len(data)
	err    error         // of WriteTo
	pause  time.Duration // before each part of maxChunk bytes
	mu     sync.Mutex
	closed []time.Time
}

func (s *testState) Size() int64 {
	if s.size != 0 {
		return s.size
	}
	return int64(len(s.data))
}

func (s *testState) WriteTo(w io.Writer) (int64, error) {
	n := 0
	for part := range slices.Chunk(s.data, maxChunk) {
		time.Sleep(s.pause)
		wrote, err := w.Write(part)
		n += wrote
		if err != nil {
			return int64(n), err
		}
	}
	return int64(n), s.err
}

func (s *testState) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = append(s.closed, time.Now())
	return nil
}

func (s *testState) closes() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.closed)
}

func send(n *fakeNode, ms ...*raftpb.Message) { n.Send(ms) }

// dialRaw connects to a member without a Transport.
func dialRaw(t *testing.T, net *memlink.Network, from, to uint64) net.Conn {
	t.Helper()
	c, err := net.Dial(context.Background(), hostOf(from), addrOf(to))
	if err != nil {
		t.Fatal(err)
	}
	return c
}
