package kvnode

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"
)

// The layout of a packet of package transport is the same in all versions.
const packetHead = 12

func appendPacket(kind byte, payload []byte) []byte {
	b := append([]byte("llkv"), 0, 1, kind, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, payload...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func readPayload(r io.Reader) (payload []byte, err error) {
	head := make([]byte, packetHead)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[8:])+4)
	_, err = io.ReadFull(r, b)
	return b[:len(b)-4], err
}

// spy listens where a member is about to be added, and keeps the hellos that members send there.
func (c *cluster) spy(name string) <-chan map[string]json.RawMessage {
	c.t.Helper()
	l, err := c.net.Listen(name + ":2380")
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = l.Close() })
	hellos := make(chan map[string]json.RawMessage, 1000)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			payload, err := readPayload(conn)
			var hello map[string]json.RawMessage
			if err == nil && json.Unmarshal(payload, &hello) == nil {
				hellos <- hello
			}
			_ = conn.Close()
		}
	}()
	return hellos
}

// guesses are death notices that can be made of a hello. Former versions had the proof in the hello. This one has a
// secret, so each value of the hello is tried as one.
func guesses(hello map[string]json.RawMessage) (payloads [][]byte) {
	candidates := [][]byte{make([]byte, 32)}
	for _, value := range hello {
		var text string
		if json.Unmarshal(value, &text) != nil {
			candidates = append(candidates, value)
			continue
		}
		candidates = append(candidates, []byte(text))
		if raw, err := hex.DecodeString(text); err == nil {
			candidates = append(candidates, raw, append(slices.Clone(raw), raw...))
		}
	}
	payloads = append(payloads, encode(hello))
	for _, guess := range candidates {
		for _, secret := range [][]byte{guess, append(slices.Clone(guess), make([]byte, 32)...)[:32]} {
			hello["secret"] = encode(base64.StdEncoding.EncodeToString(secret))
			payloads = append(payloads, encode(hello))
		}
	}
	delete(hello, "secret")
	return payloads
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// A client learns the instances of all members from a snapshot. It learns the hellos of all members by adding a member
// at an address where it listens. In plain text it can pose as a peer, and still cannot void a promise to the leader.
func TestAClientCannotDeclareTheLeaderDead(t *testing.T) {
	var all []*fakeSupervisor
	var log lines
	amend := supervised(&all)
	inCluster(t, 3, func(cfg *Config) { amend(cfg); cfg.Logger = log.logger() }, func(t *testing.T, c *cluster) {
		leader := c.leader()
		c.put(leader, "k", "before")
		<-leader.Published()
		snapshot, err := os.ReadFile(saveSnapshot(t, leader))
		if err != nil || !bytes.Contains(snapshot, []byte(leader.id.Instance)) {
			t.Fatalf("the snapshot has no instance of the leader, %v: the client would have to learn it elsewhere", err)
		}
		hellos := c.spy("spy")
		if _, err := leader.AddMember(t.Context(), peerURLs("spy"), true); err != nil {
			t.Fatal(err)
		}
		hello := <-hellos
		for string(hello["from"]) != fmt.Sprint(leader.ID()) {
			hello = <-hellos
		}
		term := leader.Term()
		for _, f := range c.followers(leader) {
			hello["to"] = encode(f.ID())
			for _, kind := range []byte{201, 202} {
				for _, payload := range guesses(hello) {
					c.send(f, appendPacket(kind, payload))
				}
			}
		}
		time.Sleep(time.Second)
		if n := log.count("promise_void=true"); n > 0 {
			t.Errorf("%d promises to a leader that lives were void, want none", n)
		}
		if leader.Term() != term || leader.Leader() != leader.ID() {
			t.Errorf("term %d, led by %x, want %d, led by %x", leader.Term(), leader.Leader(), term, leader.ID())
		}
	})
}

// send sends a packet to n, and waits for the answer.
func (c *cluster) send(n *Node, packet []byte) {
	c.t.Helper()
	conn, err := c.net.Dial(c.t.Context(), "spy", n.Name()+":2380")
	if err != nil {
		c.t.Fatal(err)
	}
	defer func(conn net.Conn) { _ = conn.Close() }(conn)
	if _, err := conn.Write(packet); err != nil {
		c.t.Fatal(err)
	}
	_, _ = readPayload(conn)
}
