package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// greedy is a stream that announces n bytes and delivers fewer. It records the
// largest buffer of its reads.
type greedy struct {
	io.Reader
	largest int
}

func (g *greedy) Read(p []byte) (int, error) {
	g.largest = max(g.largest, len(p))
	return g.Reader.Read(p)
}

// The memory of a reader depends on the bytes that have arrived, not on the announced
// length.
func TestMemoryDependsOnArrivedBytes(t *testing.T) {
	for _, arrived := range []int{0, 1, growStep, growStep + 1, 1 << 20} {
		b := make([]byte, frameHead+arrived)
		binary.BigEndian.PutUint32(b, MaxMessageBytes)
		g := &greedy{Reader: bytes.NewReader(b)}
		_, _, err := (&frames{r: g}).next()
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("next() after %d bytes = %v, want %v", arrived, err, io.ErrUnexpectedEOF)
		}
		if limit := max(growStep, 2*arrived); g.largest > limit {
			t.Errorf("with %d bytes there, %d were allocated, want at most %d", arrived, g.largest, limit)
		}
	}
}

func TestFrameLimits(t *testing.T) {
	frame := func(body []byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
		b = binary.BigEndian.AppendUint32(b, frameSum(b, body))
		return append(b, body...)
	}
	entries := func(n int) []byte { return bytes.Repeat([]byte{7<<3 | 2, 0}, n) }
	nested := protowire.AppendBytes(protowire.AppendTag(nil, 14, protowire.BytesType), nil)
	long := make([]byte, frameHead)
	binary.BigEndian.PutUint32(long, MaxMessageBytes+1)
	damaged := frame(entries(1))
	damaged[len(damaged)-1] ^= 1
	for _, c := range []struct {
		name string
		wire []byte
		want string
	}{
		{"too long", long, "exceeds the limit of 10485760"},
		{"too many entries", frame(entries(maxEntries + 1)), "exceeds the limit of 524288"},
		{"as many entries as allowed", frame(entries(maxEntries)), ""},
		{"a message within a message", frame(nested), "responses"},
		{"not a message", frame([]byte{0xff}), "decode message"},
		{"damaged", damaged, "is damaged"},
		{"a ping", appendPing(nil), ""},
		{"cut short", frame(entries(9))[:20], "unexpected EOF"},
		{"cut in the head", make([]byte, 7), "unexpected EOF"},
		{"nothing", nil, "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := (&frames{r: bytes.NewReader(c.wire)}).next()
			if err == nil != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("next() = %v, want %q", err, c.want)
			}
		})
	}
}

// Several connections encode the same entries at once; run with -race.
func TestEntriesAreEncodedConcurrently(t *testing.T) {
	shared := []*raftpb.Entry{entry(1, 1), entry(2, 1)}
	shared[0].Data = []byte("shared")
	var wg sync.WaitGroup
	for to := range uint64(8) {
		wg.Go(func() {
			m := message(raftpb.MsgApp, func(m *raftpb.Message) { after(m, 0, 0, shared...); m.To = &to })
			for range 100 {
				b, err := appendFrame(nil, m)
				if err != nil {
					t.Error(err)
					return
				}
				got, _, err := (&frames{r: bytes.NewReader(b)}).next()
				if err != nil || !proto.Equal(got, m) {
					t.Errorf("next() = %v, %v, want %v", got, err, m)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Reading arbitrary bytes as frames ends with an error, and the messages before it
// can be sent.
func FuzzFramesNeverPanic(f *testing.F) {
	b, err := appendFrame(nil, appendOf(1, 2, 1, []byte("x")))
	must(err)
	f.Add(b)
	f.Add(appendPing(b))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := &frames{r: bytes.NewReader(wire)}
		for {
			m, _, err := r.next()
			if err != nil {
				return
			}
			if m == nil {
				continue
			}
			if _, err := appendFrame(nil, m); err != nil {
				t.Fatalf("a message that was read cannot be sent: %v", err)
			}
		}
	})
}

// Arbitrary bytes in place of a hello get an answer or a refusal.
func FuzzPacketsNeverPanic(f *testing.F) {
	p, err := newPacket(1, helloTo(1, 2))
	must(err)
	f.Add(p.wire())
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		tr := &Transport{cfg: Config{Hello: helloOf(2)}.WithDefaults(), self: 2}
		p, err := readPacket(bytes.NewReader(wire), maxPayload)
		if err != nil {
			return
		}
		_ = tr.checkStreamHello(&inbound{}, p)
		_, _ = tr.checkAnswer(nil, p, 1)
	})
}

// An arbitrary payload with the right checksum gets an answer or a refusal. The
// fuzzer does not find the checksum itself.
func FuzzHellosNeverPanic(f *testing.F) {
	p, err := newPacket(1, helloTo(1, 2))
	must(err)
	f.Add(p.kind, p.payload)
	f.Add(p.kind, []byte(`{"log":{"boot":"x","term":1,"commit":18446744073709551615,"last":0},"hold":-1}`))
	f.Fuzz(func(t *testing.T, kind byte, payload []byte) {
		if len(payload) > maxPayload {
			return
		}
		tr := &Transport{cfg: Config{Hello: helloOf(2)}.WithDefaults(), self: 2}
		wire := packet{version: version, kind: kind, payload: payload}.wire()
		p, err := readPacket(bytes.NewReader(wire), maxPayload)
		if err != nil {
			t.Fatalf("readPacket() of a packet with the right checksum = %v", err)
		}
		_ = tr.checkStreamHello(&inbound{}, p)
		_, _ = tr.checkAnswer(nil, p, 1)
	})
}

func TestPacketLimits(t *testing.T) {
	p, err := newPacket(1, helloTo(1, 2))
	must(err)
	whole := p.wire()
	long := bytes.Clone(whole)
	binary.BigEndian.PutUint32(long[8:], maxPayload+1)
	for _, c := range []struct {
		name string
		wire []byte
		want string
	}{
		{"a hello", whole, ""},
		{"HTTP", []byte("GET / HTTP/1.1\r\n"), "not a member"},
		{"too long", long, "exceeds the limit of 65536"},
		{"cut short", whole[:len(whole)-1], "unexpected EOF"},
	} {
		if _, err := readPacket(bytes.NewReader(c.wire), maxPayload); err == nil != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("readPacket() of %s = %v, want %q", c.name, err, c.want)
		}
	}
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x10
		if _, err := readPacket(bytes.NewReader(b), maxPayload); err == nil {
			t.Errorf("a hello with byte %d damaged was read", i)
		}
	}
	if _, err := newPacket(1, Hello{Name: strings.Repeat("n", maxPayload)}); err == nil {
		t.Error("newPacket() took a hello beyond the limit")
	}
}
