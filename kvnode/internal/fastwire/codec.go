// Package fastwire encodes and decodes the messages of leaderlease.kvnode.v1.Fast, which
// kvnode/fastkv/fast.proto describes. Generated code would allocate a message for each
// request of a batch; here a request is a view of the bytes that came.
package fastwire

import (
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// The service, and its only method.
const (
	Service = "leaderlease.kvnode.v1.Fast"
	Stream  = "Do"
	Method  = "/" + Service + "/" + Stream
)

// MaxMessage is about how large a message gets before the next one is begun. Any server and
// client of gRPC takes it. Larger: a large answer keeps small ones waiting longer. Smaller:
// more messages for as much.
const MaxMessage = 256 << 10

// Raw is an encoded message: Requests or Answers.
type Raw []byte

// Codec passes a Raw as it is, and all else on.
type Codec struct{ encoding.CodecV2 }

// NewCodec returns a codec that is gRPC's own for all else.
func NewCodec() Codec { return Codec{encoding.GetCodecV2(protocodec.Name)} }

// Marshal implements encoding.CodecV2.
func (c Codec) Marshal(v any) (mem.BufferSlice, error) {
	if raw, ok := v.(Raw); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	if raw, ok := v.(*Raw); ok {
		*raw = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
