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

// Command is what an entry carries.
type Command struct {
	// ID names the proposal on the member that waits for it; 0: nobody does.
	ID uint64
	// Fence drops the command unless the entry has this term; 0: it does not
	// matter. Work that only the leader of that term may do carries it, and what is
	// proposed again, in a later term, if it is in no log of this one.
	Fence uint64
	// Grants says which TTL leases a LeaseRevoke or LeaseCheckpoint means, in its
	// order: those that were made by the entries of these indexes, 0 for one whose
	// entry is not known. Of any other that has the ID by then nothing becomes. Nil:
	// whichever has the ID. FormatGrants is what it takes.
	Grants []uint64
	// Request is the client's request. Exactly one of Request and Register is
	// set, or neither: a command without effect, which reads through the log use.
	Request *pb.InternalRaftRequest
	// Register replaces a member's own attributes: name, client URLs, instance.
	Register *Member
}

// The first byte of a command is its kind, and the format of what follows: ID
// and Fence as uvarints, then the payload up to the end. A format that an older
// version cannot read gets a byte that it does not know, and is not used before
// the cluster's format says that all members know it.
const (
	kindNothing  = 0x10 // no payload
	kindRequest  = 0x11 // an InternalRaftRequest
	kindRegister = 0x12 // a Member as JSON
	kindGrants   = 0x13 // the number of Grants, each of them, and an InternalRaftRequest
)

var errTwoPayloads = errors.New("store: command has both a request and a registration")

// Encode returns the data of an entry.
func (c *Command) Encode() ([]byte, error) {
	head := make([]byte, 1, 1+2*binary.MaxVarintLen64)
	head = binary.AppendUvarint(head, c.ID)
	head = binary.AppendUvarint(head, c.Fence)
	switch {
	case c.Request != nil && c.Register != nil:
		return nil, errTwoPayloads
	case c.Request != nil:
		head[0] = kindRequest
		if c.Grants != nil {
			head[0] = kindGrants
			head = appendGrants(head, c.Grants)
		}
		buf := make([]byte, len(head), len(head)+proto.Size(c.Request))
		copy(buf, head)
		// The size was asked for a line ago, and is kept in the message: nobody changes it meanwhile.
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

// IsRegistration reports whether data is of a command with Register, if it decodes.
func IsRegistration(data []byte) bool { return len(data) > 0 && data[0] == kindRegister }

// DecodeCommand is the reverse of Encode. It never panics. Empty data, which raft appends
// for its own sake, is a command without effect.
func DecodeCommand(data []byte) (*Command, error) {
	c := &Command{}
	if len(data) == 0 {
		return c, nil
	}
	kind, rest := data[0], data[1:]
	for _, field := range []*uint64{&c.ID, &c.Fence} {
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
			err = fmt.Errorf("%d bytes follow it", len(rest))
		}
	case kindGrants:
		if c.Grants, rest, err = decodeGrants(rest); err != nil {
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
		err = errors.New("this version does not know it")
	}
	if err != nil {
		return nil, fmt.Errorf("store: command of kind %#x: %w", kind, err)
	}
	return c, nil
}

// Refence returns the data of the same command with another fence. The data given is not changed: raft,
// and what sends it, may hold it. What is no command comes back as it is.
func Refence(data []byte, fence uint64) []byte {
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
	return append(binary.AppendUvarint(to, fence), data[head+old:]...)
}

// MayFence reports whether a command that has no fence means the same with one, as long as the entry
// has that term. What ends a TTL lease, or remembers its time, does not: with a fence it is
// taken for the word of who counts that time (ErrNoGrant).
func (c *Command) MayFence() bool {
	return c.Fence == 0 && c.Request.GetLeaseRevoke() == nil && c.Request.GetLeaseCheckpoint() == nil
}

func appendGrants(to []byte, grants []uint64) []byte {
	to = binary.AppendUvarint(to, uint64(len(grants)))
	for _, g := range grants {
		to = binary.AppendUvarint(to, g)
	}
	return to
}

// decodeGrants is the reverse, and returns what follows. Its result is not nil.
func decodeGrants(data []byte) (grants []uint64, rest []byte, err error) {
	count, n := binary.Uvarint(data)
	if n <= 0 || count > uint64(len(data)-n) { // each takes a byte at least
		return nil, nil, fmt.Errorf("%d grants in %d bytes", count, len(data))
	}
	grants, rest = make([]uint64, count), data[n:]
	for i := range grants {
		x, n := binary.Uvarint(rest)
		if n <= 0 {
			return nil, nil, fmt.Errorf("it ends within grant %d of %d", i+1, count)
		}
		grants[i], rest = x, rest[n:]
	}
	return grants, rest, nil
}

// means reports whether l is what the i-th TTL lease of the request is to be.
func (c *Command) matchesLease(i int, l TTLLease) bool {
	if c.Grants == nil {
		return true
	}
	return i < len(c.Grants) && c.Grants[i] == l.Grant
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

// decodePut does what proto.Unmarshal does for a put and nothing else, in less than half of the time.
// It returns nil for all else: another request, more than one, fields that are not known, or cut
// off. Package proto then decides, so members read every entry alike, with this function or without.
//
// The key is part of data, which raft never changes: newChain copies it. The value is a copy, as
// it is kept for longer than the entry.
func decodePut(data []byte) *pb.InternalRaftRequest {
	if len(data) == 0 || data[0] != tagPut {
		return nil
	}
	fields, n := protowire.ConsumeBytes(data[1:])
	if n != len(data)-1 { // n is negative if it is cut off
		return nil
	}
	both := &struct { // one allocation for two messages
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

// decodePutField returns how many bytes the field has without its tag, a negative number if
// it is cut off or not known.
func decodePutField(put *pb.PutRequest, tag byte, data []byte) (n int) {
	var b []byte
	var v uint64
	switch tag {
	case tagKey:
		put.Key, n = protowire.ConsumeBytes(data)
	case tagValue:
		b, n = protowire.ConsumeBytes(data)
		put.Value = append([]byte(nil), b...) // nil if it is empty, as package proto has it
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

// The format is a number that the whole cluster has: what commands it may use, and
// how its checkpoints are written. It begins with FormatFirst and is raised by an
// entry (MemberChange.Format), so that all members change at the same place in the
// log. A version that does not know a format must not apply what comes after that
// entry, and refuses the checkpoints of it (ErrFormat).
const (
	// FormatFirst is what every version knows.
	FormatFirst = 1
	// FormatGrants numbers the grants of TTL leases (TTLLease.Grant), and has those
	// who count their time say which of them they mean (Command.Grants).
	FormatGrants = 2
	// FormatNewest is the newest that this version knows.
	FormatNewest = FormatGrants
)

// Format returns the cluster's format as of the newest entry that was applied.
func (s *Store) Format() int64 { return s.state.Load().format.Load() }
