package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Command is the decoded data of an entry.
type Command struct {
	// ID identifies the proposal on the member that waits for it. 0: no member waits.
	ID uint64
	// RequiredTerm is the term that the entry must have: in an entry of another term the command has no
	// effect (ErrFenced). 0: any term. It is set for commands that only the leader of a term may run.
	// It is also set for proposals that may be proposed again in a later term, so that at most one
	// copy has an effect.
	RequiredTerm uint64
	// Generations identifies the TTL leases of a LeaseRevoke or LeaseCheckpoint, in the order of the
	// request, by the index of the entry that granted each. 0 stands for a lease that was
	// granted before ClusterVersionGenerations. The command skips a lease that was granted again under the
	// same ID. Nil: any lease with the ID. A list requires ClusterVersionGenerations.
	Generations []uint64
	// Request is the client's request. At most one of Request and Register is set. A command
	// with neither has no effect; reads through the log use it.
	Request *pb.InternalRaftRequest
	// Register replaces the name, client URLs and instance of a member.
	Register *Member
}

// The first byte of a command is its kind. ID and RequiredTerm follow as uvarints, then the payload. A new
// encoding gets a new kind, and is used only after the cluster version says that all members know
// it.
const (
	kindNothing     = 0x10 // no payload
	kindRequest     = 0x11 // an InternalRaftRequest
	kindRegister    = 0x12 // a Member as JSON
	kindGenerations = 0x13 // the number of Generations, each of them, and an InternalRaftRequest
)

var errTwoPayloads = errors.New("store: command has both a request and a registration")

// Encode returns the data of an entry.
func (c *Command) Encode() ([]byte, error) {
	head := make([]byte, 1, 1+2*binary.MaxVarintLen64)
	head = binary.AppendUvarint(head, c.ID)
	head = binary.AppendUvarint(head, c.RequiredTerm)
	switch {
	case c.Request != nil && c.Register != nil:
		return nil, errTwoPayloads
	case c.Request != nil:
		head[0] = kindRequest
		if c.Generations != nil {
			head[0] = kindGenerations
			head = appendGenerations(head, c.Generations)
		}
		buf := make([]byte, len(head), len(head)+proto.Size(c.Request))
		copy(buf, head)
		// proto.Size has cached the size in the message, and the message has not changed
		// since.
		data, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(buf, c.Request)
		if err != nil {
			return nil, fmt.Errorf("store: encode request: %w", err)
		}
		return data, nil
	case c.Register != nil:
		head[0] = kindRegister
		data, err := json.Marshal(c.Register)
		if err != nil {
			return nil, fmt.Errorf("store: encode registration: %w", err)
		}
		return append(head, data...), nil
	default:
		head[0] = kindNothing
		return head, nil
	}
}

// IsRegistration reports whether data is a command with Register, without decoding it.
func IsRegistration(data []byte) bool { return len(data) > 0 && data[0] == kindRegister }

// DecodeCommand is the reverse of Encode. It never panics. Empty data, which raft itself appends,
// is a command without effect.
func DecodeCommand(data []byte) (*Command, error) {
	c := &Command{}
	if len(data) == 0 {
		return c, nil
	}
	kind, rest := data[0], data[1:]
	for _, field := range []*uint64{&c.ID, &c.RequiredTerm} {
		x, n := binary.Uvarint(rest)
		if n <= 0 {
			return nil, fmt.Errorf("store: command of %d bytes ends within its header", len(data))
		}
		*field, rest = x, rest[n:]
	}
	var err error
	switch kind {
	case kindNothing:
		if len(rest) > 0 {
			err = fmt.Errorf("%d unexpected bytes follow it", len(rest))
		}
	case kindGenerations:
		if c.Generations, rest, err = decodeGenerations(rest); err != nil {
			break
		}
		fallthrough
	case kindRequest:
		if c.Request = decodePut(rest); c.Request != nil {
			break
		}
		c.Request = &pb.InternalRaftRequest{}
		err = proto.Unmarshal(rest, c.Request)
	case kindRegister:
		c.Register = &Member{}
		err = json.Unmarshal(rest, c.Register)
	default:
		err = errors.New("this version of kvnode does not know the kind")
	}
	if err != nil {
		return nil, fmt.Errorf("store: command of kind %#x: %w", kind, err)
	}
	return c, nil
}

// WithRequiredTerm returns a copy of data, an encoded command, with term as its RequiredTerm. data itself
// stays unchanged, since raft may hold it. Data that is not a command is returned as it is.
func WithRequiredTerm(data []byte, term uint64) []byte {
	if len(data) == 0 {
		return data
	}
	_, id := binary.Uvarint(data[1:])
	if id <= 0 {
		return data
	}
	head := 1 + id
	_, old := binary.Uvarint(data[head:])
	if old <= 0 {
		return data
	}
	to := make([]byte, head, len(data)+binary.MaxVarintLen64)
	copy(to, data)
	return append(binary.AppendUvarint(to, term), data[head+old:]...)
}

// MayRequireTerm reports whether c may get a RequiredTerm. LeaseRevoke and LeaseCheckpoint may not: with a
// RequiredTerm they count as the leader's own, and must then name generations (ErrNoGeneration).
func (c *Command) MayRequireTerm() bool {
	return c.RequiredTerm == 0 && c.Request.GetLeaseRevoke() == nil && c.Request.GetLeaseCheckpoint() == nil
}

func appendGenerations(to []byte, generations []uint64) []byte {
	to = binary.AppendUvarint(to, uint64(len(generations)))
	for _, g := range generations {
		to = binary.AppendUvarint(to, g)
	}
	return to
}

// decodeGenerations is the reverse of appendGenerations. It also returns the rest. The list is
// not nil.
func decodeGenerations(data []byte) (generations []uint64, rest []byte, err error) {
	count, n := binary.Uvarint(data)
	if n <= 0 || count > uint64(len(data)-n) { // each takes at least one byte
		return nil, nil, fmt.Errorf("%d generations in %d bytes", count, len(data))
	}
	generations, rest = make([]uint64, count), data[n:]
	for i := range generations {
		x, n := binary.Uvarint(rest)
		if n <= 0 {
			return nil, nil, fmt.Errorf("it ends within generation %d of %d", i+1, count)
		}
		generations[i], rest = x, rest[n:]
	}
	return generations, rest, nil
}

// matchesLease reports whether l, which has the ID of the i-th TTL lease of the request, is of the
// generation that the command names, if it names any.
func (c *Command) matchesLease(i int, l TTLLease) bool {
	if c.Generations == nil {
		return true
	}
	return i < len(c.Generations) && c.Generations[i] == l.Generation
}

// The fields of an encoded InternalRaftRequest that is a put. Each tag is one byte.
const (
	tagPut         = 4<<3 | byte(protowire.BytesType)
	tagKey         = 1<<3 | byte(protowire.BytesType)
	tagValue       = 2<<3 | byte(protowire.BytesType)
	tagLease       = 3<<3 | byte(protowire.VarintType)
	tagPrevKv      = 4<<3 | byte(protowire.VarintType)
	tagIgnoreValue = 5<<3 | byte(protowire.VarintType)
	tagIgnoreLease = 6<<3 | byte(protowire.VarintType)
)

// decodePut decodes an InternalRaftRequest that contains a put and nothing else, in less than half
// the time of proto.Unmarshal. It returns nil for everything else, including unknown and truncated
// fields, and the caller uses package proto. So members with and without this function decode all
// entries alike.
//
// The key shares memory with data, which raft never changes; newChain copies it. The value is a
// copy, since the store keeps it for longer than the log keeps the entry.
func decodePut(data []byte) *pb.InternalRaftRequest {
	if len(data) == 0 || data[0] != tagPut {
		return nil
	}
	fields, n := protowire.ConsumeBytes(data[1:])
	if n != len(data)-1 { // n is negative for truncated data
		return nil
	}
	both := &struct { // one allocation for both messages
		request pb.InternalRaftRequest
		put     pb.PutRequest
	}{}
	for ; len(fields) > 0; fields = fields[1+n:] {
		if n = decodePutField(&both.put, fields[0], fields[1:]); n < 0 {
			return nil
		}
	}
	both.request.Put = &both.put
	return &both.request
}

// decodePutField returns the length of the field without its tag, negative for an unknown or
// truncated field.
func decodePutField(put *pb.PutRequest, tag byte, data []byte) (n int) {
	var b []byte
	var v uint64
	switch tag {
	case tagKey:
		put.Key, n = protowire.ConsumeBytes(data)
	case tagValue:
		b, n = protowire.ConsumeBytes(data)
		put.Value = append([]byte(nil), b...) // nil if empty, as with package proto
	case tagLease:
		v, n = protowire.ConsumeVarint(data)
		put.Lease = int64(v)
	case tagPrevKv:
		v, n = protowire.ConsumeVarint(data)
		put.PrevKv = protowire.DecodeBool(v)
	case tagIgnoreValue:
		v, n = protowire.ConsumeVarint(data)
		put.IgnoreValue = protowire.DecodeBool(v)
	case tagIgnoreLease:
		v, n = protowire.ConsumeVarint(data)
		put.IgnoreLease = protowire.DecodeBool(v)
	default:
		return -1
	}
	return n
}

// The cluster version is a number that decides which commands the cluster may use, and
// how checkpoints are written. An entry raises it (MemberChange.ClusterVersion), so all members switch at
// the same place in the log. A program that does not know the number stops at that entry, and refuses
// checkpoints that have it (ErrFormat).
const (
	// ClusterVersionFirst is known to all versions.
	ClusterVersionFirst = 1
	// ClusterVersionGenerations gives TTL leases generations (TTLLease.Generation), and makes leaders name
	// them (Command.Generations).
	ClusterVersionGenerations = 2
	// ClusterVersionNewest is the newest cluster version that this version of the program knows.
	ClusterVersionNewest = ClusterVersionGenerations
)

// ClusterVersion returns the cluster version as of the newest applied entry.
func (s *Store) ClusterVersion() int64 { return s.state.Load().clusterVersion.Load() }
