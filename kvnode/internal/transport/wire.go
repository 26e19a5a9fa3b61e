package transport

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A packet opens a connection, or answers the first packet or a snapshot:
//
//	magic    4 bytes, "llkv"
//	version  2 bytes
//	kind     1 byte: the stream + 1 or a request (from the dialler), or the answer
//	zero     1 byte
//	length   4 bytes, at most maxPayload
//	payload  JSON
//	crc      4 bytes: CRC-32C of everything before it
//
// Numbers are big-endian. All versions keep this layout, so that they can refuse
// each other.
const (
	magic         = "llkv"
	version       = 1
	packetHead    = 12
	maxPayload    = 64 << 10
	crcSize       = 4
	answerOK      = 1 // the payload is the acceptor's Hello, a member list, or empty
	answerRefused = 2 // the payload is a Refusal
	answerWorking = 3 // the payload is empty; the answer follows later
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type packet struct {
	version uint16
	kind    byte
	payload []byte
}

// newPacket returns a packet with v as its payload. Without v it has no payload.
func newPacket(kind byte, v any) (packet, error) {
	p := packet{version: version, kind: kind}
	if v == nil {
		return p, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return packet{}, fmt.Errorf("encode %T: %w", v, err)
	}
	if len(b) > maxPayload {
		return packet{}, fmt.Errorf("%T of %d bytes exceeds the limit of %d", v, len(b), maxPayload)
	}
	p.payload = b
	return p, nil
}

// wire returns the bytes of p.
func (p packet) wire() []byte {
	b := append(make([]byte, 0, packetHead+len(p.payload)+crcSize), magic...)
	b = binary.BigEndian.AppendUint16(b, p.version)
	b = append(b, p.kind, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(p.payload)))
	b = append(b, p.payload...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func writePacket(w io.Writer, kind byte, v any) error {
	p, err := newPacket(kind, v)
	if err != nil {
		return err
	}
	_, err = w.Write(p.wire())
	return err
}

// readPacket reads a packet of any version. It fails if the payload is longer than
// limit bytes.
func readPacket(r io.Reader, limit uint32) (packet, error) {
	b := make([]byte, packetHead, packetHead+512)
	if _, err := io.ReadFull(r, b); err != nil {
		return packet{}, err
	}
	if got := string(b[:len(magic)]); got != magic {
		return packet{}, fmt.Errorf("connection begins with %q, want %q: the other end is not a member", got, magic)
	}
	size := binary.BigEndian.Uint32(b[8:])
	if size > limit {
		return packet{}, fmt.Errorf("packet of %d bytes exceeds the limit of %d", size, limit)
	}
	b, err := readN(r, b, int(size)+crcSize)
	if err != nil {
		return packet{}, err
	}
	body, sum := b[:len(b)-crcSize], binary.BigEndian.Uint32(b[len(b)-crcSize:])
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return packet{}, fmt.Errorf("packet is damaged: checksum %08x, want %08x", got, sum)
	}
	return packet{version: binary.BigEndian.Uint16(b[4:]), kind: b[6], payload: body[packetHead:]}, nil
}

// growStep is the allocation of readN before the first byte has arrived. Later
// steps double it.
const growStep = 64 << 10

// readN appends n bytes of r to b. Whatever n is, it allocates at most growStep or
// twice the bytes that have arrived.
func readN(r io.Reader, b []byte, n int) ([]byte, error) {
	for n > 0 {
		if len(b) == cap(b) {
			b = append(make([]byte, 0, len(b)+min(n, max(growStep, len(b)))), b...)
		}
		room := b[len(b):min(cap(b), len(b)+n)]
		got, err := io.ReadFull(r, room)
		b, n = b[:len(b)+got], n-got
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return b, err
		}
	}
	return b, nil
}

// A frame is 4 bytes of length, 4 bytes of CRC-32C over the length and the body,
// and the body: one raft message as protobuf. A frame without a body is a ping,
// which the other end sends back.
const frameHead = 8

// MaxMessageBytes limits one raft message on the wire. A message with an entry of kvnode.MaxRequestLimit bytes fits.
const MaxMessageBytes = 10 << 20

// maxEntries limits the entries of a message. An entry of 2 bytes on the wire takes 100 bytes of memory, so
// MaxMessageBytes does not limit the memory.
const maxEntries = 1 << 19

// appendFrame appends m's frame to b. After an error it returns b unchanged.
func appendFrame(b []byte, m *raftpb.Message) ([]byte, error) {
	begin := len(b)
	b = append(b, make([]byte, frameHead)...)
	b, err := proto.MarshalOptions{}.MarshalAppend(b, m)
	if err != nil {
		return b[:begin], fmt.Errorf("encode %s: %w", m.GetType(), err)
	}
	size := len(b) - begin - frameHead
	if size > MaxMessageBytes {
		return b[:begin], fmt.Errorf("%s of %d bytes exceeds the limit of %d", m.GetType(), size, MaxMessageBytes)
	}
	binary.BigEndian.PutUint32(b[begin:], uint32(size))
	binary.BigEndian.PutUint32(b[begin+4:], frameSum(b[begin:begin+4], b[begin+frameHead:]))
	return b, nil
}

func appendPing(b []byte) []byte {
	return binary.BigEndian.AppendUint32(append(b, 0, 0, 0, 0), frameSum(make([]byte, 4), nil))
}

func frameSum(length, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(length, castagnoli), castagnoli, body)
}

// keepBuffer is the size of the largest buffer that a connection keeps for its next
// message.
const keepBuffer = 1 << 20

// frames reads the frames of a connection.
type frames struct {
	r   io.Reader
	buf []byte
}

// next returns the next message and its size on the wire. The message is nil for a
// ping. It shares no memory with the buffer.
func (f *frames) next() (*raftpb.Message, int, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return nil, 0, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > MaxMessageBytes {
		return nil, 0, fmt.Errorf("message of %d bytes exceeds the limit of %d", size, MaxMessageBytes)
	}
	body, err := readN(f.r, f.buf[:0], int(size))
	if err != nil {
		return nil, 0, err
	}
	if f.buf = body[:0]; cap(body) > keepBuffer {
		f.buf = nil
	}
	want := binary.BigEndian.Uint32(head[4:])
	if got := frameSum(head[:4], body); got != want {
		return nil, 0, fmt.Errorf("message of %d bytes is damaged: checksum %08x, want %08x", size, got, want)
	}
	if size == 0 {
		return nil, frameHead, nil
	}
	m, err := decode(body)
	return m, frameHead + int(size), err
}

// decode decodes a message. It checks the limits before it allocates.
func decode(b []byte) (*raftpb.Message, error) {
	const fieldEntries, fieldResponses = 7, 14
	entries := 0
	for rest := b; len(rest) > 0; {
		num, _, n := protowire.ConsumeField(rest)
		switch {
		case n < 0:
			return nil, fmt.Errorf("decode message: %w", protowire.ParseError(n))
		case num == fieldResponses:
			// Messages that contain messages are for raft's storage threads only.
			return nil, &InvalidError{Rule: "responses", Text: "message carries responses, which are for local storage"}
		case num == fieldEntries:
			entries++
		}
		rest = rest[n:]
	}
	if entries > maxEntries {
		return nil, &InvalidError{Rule: "entries", Text: fmt.Sprintf("message with %d entries exceeds the limit of %d", entries, maxEntries)}
	}
	m := &raftpb.Message{}
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("decode message: %w", err)
	}
	return m, nil
}
