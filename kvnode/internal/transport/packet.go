package transport

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
)

// A packet opens a connection, answers, or ends a snapshot:
//
//	magic    4 bytes, "llkv"
//	version  2 bytes
//	kind     1 byte: of the stream (from the dialler), or of the answer
//	zero     1 byte
//	length   4 bytes, at most maxPayload
//	payload  JSON
//	crc      4 bytes: CRC-32C of everything before it
//
// Numbers are big-endian. This layout is for all versions, or they could not
// refuse each other.
const (
	magic         = "llkv"
	version       = 1
	packetHead    = 12
	maxPayload    = 64 << 10
	crcSize       = 4
	answerOK      = 1 // the payload is the acceptor's Hello, or empty
	answerRefused = 2 // the payload is a Refusal
	answerWorking = 3 // the payload is empty: the answer is to come
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type packet struct {
	version uint16
	kind    byte
	payload []byte
}

// newPacket returns a packet with v as its payload, none if v is nil.
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

// wire returns p as it goes over the wire.
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

// readPacket reads one packet of any version, whose payload has at most limit bytes.
func readPacket(r io.Reader, limit uint32) (packet, error) {
	b := make([]byte, packetHead, packetHead+512)
	if _, err := io.ReadFull(r, b); err != nil {
		return packet{}, err
	}
	if got := string(b[:len(magic)]); got != magic {
		return packet{}, fmt.Errorf("connection begins with %q, want %q: not a member of a cluster", got, magic)
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

// growStep is what is allocated before the first byte of a claimed length has
// arrived; later steps double.
const growStep = 64 << 10

// readN appends n bytes of r to b. It allocates no more than growStep or twice
// what has arrived, whatever n claims.
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
