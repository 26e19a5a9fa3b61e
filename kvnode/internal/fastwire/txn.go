package fastwire

import "google.golang.org/protobuf/encoding/protowire"

// The fields of etcdserverpb.TxnRequest and of its RequestOp.
const (
	tagCompare = 1<<3 | lenTag
	tagSuccess = 2<<3 | lenTag
	tagFailure = 3<<3 | lenTag
	tagOpTxn   = 4<<3 | lenTag
)

// maxTxnDepth is how deep TxnMessages looks. In what is nested deeper it counts as many messages as
// there can be.
const maxTxnDepth = 8

// TxnMessages returns how many messages package proto makes of an encoded TxnRequest: two bytes
// may become one of some 200.
func TxnMessages(data []byte) int { return txnMessages(data, 0) }

func txnMessages(data []byte, depth int) (n int) {
	if depth > maxTxnDepth {
		return len(data) / 2
	}
	_ = fields(data, func(tag, _ uint64, field []byte) error { // package proto says what is wrong
		switch tag {
		case tagCompare:
			n++
		case tagSuccess, tagFailure:
			n += 1 + opMessages(field, depth)
		}
		return nil
	})
	return n
}

func opMessages(data []byte, depth int) (n int) {
	_ = fields(data, func(tag, _ uint64, field []byte) error {
		if number, kind := protowire.DecodeTag(tag); kind != protowire.BytesType || number > 4 {
			return nil
		}
		n++
		if tag == tagOpTxn {
			n += txnMessages(field, depth+1)
		}
		return nil
	})
	return n
}
