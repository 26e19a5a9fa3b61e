// Package fastwire encodes and decodes the messages of leaderlease.kvnode.v1.Fast, which
// kvnode/fastkv/fast.proto describes. Generated code would allocate a message for each
// request of a batch; here a request is a view of the bytes that came.
package fastwire

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
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

// Metadata of calls that kvnode has and etcd does not. Package client exports them.
const (
	MetadataReadMode = "x-lease-read"
	TrailerReadPath  = "x-lease-read-path"
	TrailerRemaining = "x-lease-remaining-ms"
)

// overBudgetText begins the message of NoRoom, by which clients know it.
const overBudgetText = "kvnode: no room on the streams for a request"

// OverBudget is the answer to a request that the server has not begun, since it takes cost bytes
// where used of at most limit bytes are in use. A client makes a call instead.
func OverBudget(cost int, used, limit int64) error {
	return status.Errorf(codes.ResourceExhausted, "%s of %d bytes: %d of %d are in use: make a call instead", overBudgetText, cost, used, limit)
}

// IsOverBudget reports whether err is the answer NoRoom.
func IsOverBudget(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.ResourceExhausted && strings.HasPrefix(s.Message(), overBudgetText)
}
