package fastwire

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// single is the answer to a get, in one piece of memory.
type single struct {
	response pb.RangeResponse
	header   pb.ResponseHeader
	kvs      [1]*mvccpb.KeyValue
	kv       mvccpb.KeyValue
}

// Got decodes a RangeResponse of one key or of none. It keeps no part of data. It returns nil
// for what is more than that.
func Got(data []byte, leaders *LeaderField) *pb.RangeResponse {
	f := new(single)
	for len(data) > 0 {
		tag := uint64(data[0])
		var n int
		switch {
		case tag == tagHeader && f.response.GetHeader() == nil:
			var header []byte
			header, n = protowire.ConsumeBytes(data[1:])
			f.response.Header = &f.header
			if n >= 0 && !head(&f.header, header, leaders) {
				return nil
			}
		case tag == tagKV && f.response.GetKvs() == nil:
			var kv []byte
			kv, n = protowire.ConsumeBytes(data[1:])
			f.kvs[0] = &f.kv
			f.response.Kvs = f.kvs[:]
			if n >= 0 && !f.keyValue(kv) {
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

func head(h *pb.ResponseHeader, data []byte, leaders *LeaderField) bool {
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
		case tagHeadsLeader:
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

// keyValue decodes the only key. It is copied: the message that it came with has many, and would
// stay as long as one of them.
func (f *single) keyValue(data []byte) bool {
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
			*number(kv, tag) = int64(v)
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

func number(kv *mvccpb.KeyValue, tag uint64) *int64 {
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
