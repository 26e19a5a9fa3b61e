package fastwire

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// Most requests on streams under a lease are gets of one key. Package proto takes several
// times as long to encode and decode them as the read itself. The functions of this file
// handle only such gets, and leave all other messages to package proto.

// The key of etcdserverpb.RangeRequest, and the fields that do not matter for a get under the
// lease.
const (
	tagKey          = 1<<3 | lenTag
	tagLimit        = 3<<3 | varint
	tagSerializable = 7<<3 | varint
)

// The fields of etcdserverpb.RangeResponse, of its header, and of mvccpb.KeyValue.
const (
	tagHeader = 1<<3 | lenTag
	tagKV     = 2<<3 | lenTag
	tagCount  = 4<<3 | varint

	tagCluster    = 1<<3 | varint
	tagHeadMember = 2<<3 | varint
	tagRevision   = 3<<3 | varint
	tagTerm       = 4<<3 | varint
	tagHeadLeader = 5<<3 | varint // leaderField

	tagCreate  = 2<<3 | varint
	tagMod     = 3<<3 | varint
	tagVersion = 4<<3 | varint
	tagValue   = 5<<3 | lenTag
	tagTTL     = 6<<3 | varint
)

// AppendGet appends an encoded RangeRequest for the newest version of key.
func AppendGet(b []byte, key string) []byte {
	return protowire.AppendString(protowire.AppendVarint(b, tagKey), key)
}

// DecodeGet returns the key of an encoded RangeRequest, if it asks only for the newest version of
// one key. The key refers to data.
func DecodeGet(data []byte) (key []byte, ok bool) {
	for len(data) > 0 {
		tag := uint64(data[0]) // all tags of this file have one byte
		var n int
		switch tag {
		case tagKey:
			key, n = protowire.ConsumeBytes(data[1:])
		case tagLimit, tagSerializable:
			_, n = protowire.ConsumeVarint(data[1:])
		default:
			return nil, false
		}
		if n < 0 {
			return nil, false
		}
		data = data[1+n:]
	}
	return key, len(key) > 0
}

// ResponseHead has the fields of a response header. A Leader of 0 means none.
type ResponseHead struct{ Cluster, Member, Revision, Term, Leader uint64 }

// AppendGetResponse appends an encoded RangeResponse with kv, or with no key if kv is nil.
func AppendGetResponse(b []byte, h *ResponseHead, kv *mvccpb.KeyValue) []byte {
	b = append(b, byte(tagHeader), 0)
	start := len(b)
	b = appendUint(b, tagCluster, h.Cluster)
	b = appendUint(b, tagHeadMember, h.Member)
	b = appendUint(b, tagRevision, h.Revision)
	b = appendUint(b, tagTerm, h.Term)
	b = appendUint(b, tagHeadLeader, h.Leader)
	b[start-1] = byte(len(b) - start) // at most 55, so one byte is enough
	if kv == nil {
		return b
	}
	b = protowire.AppendVarint(append(b, byte(tagKV)), uint64(kvSize(kv)))
	b = appendBytes(b, tagKey, kv.GetKey())
	b = appendUint(b, tagCreate, uint64(kv.GetCreateRevision()))
	b = appendUint(b, tagMod, uint64(kv.GetModRevision()))
	b = appendUint(b, tagVersion, uint64(kv.GetVersion()))
	b = appendBytes(b, tagValue, kv.GetValue())
	b = appendUint(b, tagTTL, uint64(kv.GetLease()))
	return append(b, byte(tagCount), 1)
}

func kvSize(kv *mvccpb.KeyValue) (n int) {
	for _, data := range [...][]byte{kv.GetKey(), kv.GetValue()} {
		if len(data) > 0 {
			n += 1 + protowire.SizeBytes(len(data))
		}
	}
	for _, v := range [...]int64{kv.GetCreateRevision(), kv.GetModRevision(), kv.GetVersion(), kv.GetLease()} {
		if v != 0 {
			n += 1 + protowire.SizeVarint(uint64(v))
		}
	}
	return n
}

// getResponse is the response to a get, in one allocation.
type getResponse struct {
	response pb.RangeResponse
	header   pb.ResponseHeader
	kvs      [1]*mvccpb.KeyValue
	kv       mvccpb.KeyValue
}

// DecodeGetResponse decodes a RangeResponse with at most one key. It copies what it needs from
// data, and returns nil for any other message.
func DecodeGetResponse(data []byte, leaders *LeaderField) *pb.RangeResponse {
	f := new(getResponse)
	for len(data) > 0 {
		tag := uint64(data[0])
		var n int
		switch {
		case tag == tagHeader && f.response.GetHeader() == nil:
			var header []byte
			header, n = protowire.ConsumeBytes(data[1:])
			f.response.Header = &f.header
			if n >= 0 && !decodeHeader(&f.header, header, leaders) {
				return nil
			}
		case tag == tagKV && f.response.GetKvs() == nil:
			var kv []byte
			kv, n = protowire.ConsumeBytes(data[1:])
			f.kvs[0] = &f.kv
			f.response.Kvs = f.kvs[:]
			if n >= 0 && !f.decodeKeyValue(kv) {
				return nil
			}
		case tag == tagCount:
			var v uint64
			v, n = protowire.ConsumeVarint(data[1:])
			f.response.Count = int64(v)
		default:
			return nil
		}
		if n < 0 {
			return nil
		}
		data = data[1+n:]
	}
	return &f.response
}

func decodeHeader(h *pb.ResponseHeader, data []byte, leaders *LeaderField) bool {
	var leader uint64
	for len(data) > 0 {
		v, n := protowire.ConsumeVarint(data[1:])
		if n < 0 {
			return false
		}
		switch uint64(data[0]) {
		case tagCluster:
			h.ClusterId = v
		case tagHeadMember:
			h.MemberId = v
		case tagRevision:
			h.Revision = int64(v)
		case tagTerm:
			h.RaftTerm = v
		case tagHeadLeader:
			if leader != 0 || v == 0 || n != protowire.SizeVarint(v) {
				return false
			}
			leader = v
		default:
			return false
		}
		data = data[1+n:]
	}
	leaders.Put(h, leader)
	return true
}

// decodeKeyValue decodes the only key. It copies the bytes, or one response would keep the whole
// message alive.
func (f *getResponse) decodeKeyValue(data []byte) bool {
	kv := &f.kv
	for rest := data; len(rest) > 0; {
		tag := uint64(rest[0])
		var n int
		var v uint64
		switch tag {
		case tagKey:
			kv.Key, n = protowire.ConsumeBytes(rest[1:])
		case tagValue:
			kv.Value, n = protowire.ConsumeBytes(rest[1:])
		case tagCreate, tagMod, tagVersion, tagTTL:
			v, n = protowire.ConsumeVarint(rest[1:])
			*intField(kv, tag) = int64(v)
		default:
			return false
		}
		if n < 0 {
			return false
		}
		rest = rest[1+n:]
	}
	k := len(kv.GetKey())
	own := append(append(make([]byte, 0, k+len(kv.GetValue())), kv.GetKey()...), kv.GetValue()...)
	if kv.GetKey() != nil {
		kv.Key = own[:k:k]
	}
	if kv.GetValue() != nil {
		kv.Value = own[k:]
	}
	return true
}

func intField(kv *mvccpb.KeyValue, tag uint64) *int64 {
	switch tag {
	case tagCreate:
		return &kv.CreateRevision
	case tagMod:
		return &kv.ModRevision
	case tagVersion:
		return &kv.Version
	default:
		return &kv.Lease
	}
}
