package fastwire

import "google.golang.org/protobuf/encoding/protowire"

// lengthBytes is what the length of a request or an answer takes, whatever it is, so that
// it can be filled in afterwards. Four bytes count to 256 MiB, a thousand times MaxMessage.
const lengthBytes = 4

// open begins a request or an answer at the end of b.
func open(b []byte) (_ []byte, start int) {
	b = append(protowire.AppendVarint(b, tagOne), make([]byte, lengthBytes)...)
	return b, len(b)
}

// shut ends what was begun at start.
func shut(b []byte, start int) []byte {
	n := len(b) - start
	for i := range lengthBytes {
		b[start-lengthBytes+i] = byte(n>>(7*i)) | 0x80
	}
	b[start-1] &^= 0x80
	return b
}

func appendUint(b []byte, tag, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendVarint(b, tag), v)
}

func appendBytes(b []byte, tag uint64, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendVarint(b, tag), v)
}

// fields calls each with the fields of b, until it fails. Of a field it passes the number,
// or the bytes, which are part of b.
func fields(b []byte, each func(tag, v uint64, data []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var v uint64
		var data []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := each(protowire.EncodeTag(number, kind), v, data); err != nil {
			return err
		}
	}
	return nil
}
