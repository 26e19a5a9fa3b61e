// Package fastwire encodes and decodes the messages of leaderlease.kvnode.v1.Fast, which
// kvnode/fastkv/fast.proto describes. Generated code would allocate a message for each request of
// a batch; here a request refers to the received bytes.
package fastwire

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// The service and its only method.
const (
	Service = "leaderlease.kvnode.v1.Fast"
	Stream  = "Do"
	Method  = "/" + Service + "/" + Stream
)

// MaxMessage is the approximate maximum size of a message. gRPC's default limits accept it. With a
// higher limit, large answers delay small ones for longer. With a lower one, more messages are needed.
const MaxMessage = 256 << 10

// Raw is an encoded message: Requests or Answers.
type Raw []byte

// Codec passes a Raw through, and other messages to gRPC's codec.
type Codec struct{ encoding.CodecV2 }

// NewCodec returns a Codec over gRPC's codec.
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

// overBudgetText begins the text of OverBudget. Clients match it.
const overBudgetText = "kvnode: no room on the streams for a request"

// OverBudget is the answer to a request that the server has not begun, because its cost exceeds
// the free part of limit bytes. The client makes a call instead.
func OverBudget(cost int, used, limit int64) error {
	return status.Errorf(codes.ResourceExhausted, "%s of %d bytes: %d of %d are in use: make a call instead", overBudgetText, cost, used, limit)
}

// IsOverBudget reports whether err is the answer OverBudget.
func IsOverBudget(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.ResourceExhausted && strings.HasPrefix(s.Message(), overBudgetText)
}
