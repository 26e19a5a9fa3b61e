package fastwire

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// A tag combines a field's number and its wire type. Fields of other types are skipped.
const (
	varint = uint64(protowire.VarintType)
	lenTag = uint64(protowire.BytesType)

	tagOne = 1<<3 | lenTag // a request or an answer

	tagMember   = 2<<3 | varint
	tagLeader   = 3<<3 | varint
	tagStopping = 4<<3 | varint
	tagLast     = 5<<3 | varint

	tagID       = 1<<3 | varint
	tagMethod   = 2<<3 | lenTag
	tagRequest  = 3<<3 | lenTag
	tagMetadata = 4<<3 | lenTag
	tagTimeout  = 5<<3 | varint
	tagCancel   = 6<<3 | varint

	tagCode     = 2<<3 | varint
	tagText     = 3<<3 | lenTag
	tagResponse = 4<<3 | lenTag
	tagMore     = 5<<3 | varint
)

// maxMetadata limits the number of keys and values of a request's metadata. It is the most that 64 KiB of HTTP/2
// headers can have, at an overhead of 32 bytes per pair.
const maxMetadata = 4096

var errMetadata = fmt.Errorf("more than %d keys and values of metadata", maxMetadata)

// Request is one request of a batch: a call of a unary method, or the cancellation of one.
type Request struct {
	ID       uint64
	Method   []byte
	Message  []byte
	Metadata [][]byte // keys and values alternate
	Timeout  time.Duration
	Cancel   bool
}

// Answer is the answer to a request.
type Answer struct {
	ID      uint64
	Code    uint32
	Text    []byte
	Message []byte
	More    bool
}

// AppendRequest appends a request to a Requests message.
func AppendRequest(b []byte, r Request) []byte {
	b, start := beginField(b)
	b = appendUint(b, tagID, r.ID)
	b = appendBytes(b, tagMethod, r.Method)
	b = appendBytes(b, tagRequest, r.Message)
	for _, m := range r.Metadata {
		b = protowire.AppendBytes(protowire.AppendVarint(b, tagMetadata), m)
	}
	b = appendUint(b, tagTimeout, uint64(r.Timeout))
	b = appendUint(b, tagCancel, protowire.EncodeBool(r.Cancel))
	return endField(b, start)
}

// AppendAnswer appends an answer to an Answers message.
func AppendAnswer(b []byte, a Answer) []byte {
	b, start := beginField(b)
	b = appendUint(b, tagID, a.ID)
	b = appendUint(b, tagCode, uint64(a.Code))
	b = appendBytes(b, tagText, a.Text)
	b = appendBytes(b, tagResponse, a.Message)
	b = appendUint(b, tagMore, protowire.EncodeBool(a.More))
	return endField(b, start)
}

// AnswerMark marks an answer until its response is appended.
type AnswerMark struct{ answer, response int }

// BeginAnswer appends an answer without its response to an Answers message. The caller appends
// the response and then calls EndAnswer.
func BeginAnswer(b []byte, id uint64) (_ []byte, at AnswerMark) {
	b, at.answer = beginField(b)
	b = appendUint(b, tagID, id)
	b = append(b, byte(tagResponse), 0, 0, 0, 0)
	at.response = len(b)
	return b, at
}

// EndAnswer completes an answer.
func EndAnswer(b []byte, at AnswerMark) []byte { return endField(endField(b, at.response), at.answer) }

// AppendMember appends the answering member and the leader to an Answers message.
func AppendMember(b []byte, member, leader uint64) []byte {
	return appendUint(appendUint(b, tagMember, member), tagLeader, leader)
}

// Requests calls each with the bytes of every request of a message, until each returns an error.
func Requests(message Raw, each func([]byte) error) error {
	return fields(message, func(tag, _ uint64, data []byte) error {
		if tag != tagOne {
			return nil
		}
		return each(data)
	})
}

// MemberState returns the answering member and the leader, if a message begins with them.
func MemberState(message Raw) (member, leader uint64) {
	_ = fields(message, func(tag, v uint64, _ []byte) error {
		switch tag {
		case tagMember:
			member = v
		case tagLeader:
			leader = v
		default:
			return errors.New("an answer")
		}
		return nil
	})
	return member, leader
}

// AppendStopping appends to an Answers message that the member stops, and the ID of the last
// request that it has received.
func AppendStopping(b []byte, last uint64) []byte {
	return appendUint(appendUint(b, tagStopping, 1), tagLast, last)
}

// State is what an Answers message reports of its member.
type State struct {
	Member, Leader uint64
	// Stopping is set if the member stops. It has received no request after the one with the ID
	// Last.
	Stopping bool
	Last     uint64
}

// Answers calls each with every answer of a message, and returns the member's state.
func Answers(message Raw, each func(Answer)) (s State, err error) {
	err = fields(message, func(tag, v uint64, data []byte) error {
		switch tag {
		case tagMember:
			s.Member = v
		case tagLeader:
			s.Leader = v
		case tagStopping:
			s.Stopping = protowire.DecodeBool(v)
		case tagLast:
			s.Last = v
		case tagOne:
			var a Answer
			if err := a.decode(data); err != nil {
				return err
			}
			each(a)
		}
		return nil
	})
	return s, err
}

// Decode sets the empty r to the request in data. r refers to data.
func (r *Request) Decode(data []byte) error {
	return fields(data, func(tag, v uint64, data []byte) error {
		switch tag {
		case tagID:
			r.ID = v
		case tagMethod:
			r.Method = data
		case tagRequest:
			r.Message = data
		case tagMetadata:
			if len(r.Metadata) == maxMetadata {
				return errMetadata
			}
			r.Metadata = append(r.Metadata, data)
		case tagTimeout:
			r.Timeout = time.Duration(v)
		case tagCancel:
			r.Cancel = protowire.DecodeBool(v)
		}
		return nil
	})
}

func (a *Answer) decode(data []byte) error {
	return fields(data, func(tag, v uint64, data []byte) error {
		switch tag {
		case tagID:
			a.ID = v
		case tagCode:
			a.Code = uint32(v)
		case tagText:
			a.Text = data
		case tagResponse:
			a.Message = data
		case tagMore:
			a.More = protowire.DecodeBool(v)
		}
		return nil
	})
}

// lengthBytes is the fixed size of the length of a request or an answer, so that it can be filled
// in afterwards. Four bytes are enough for 256 MiB, a thousand times MaxMessage.
const lengthBytes = 4

// beginField begins a request or an answer at the end of b.
func beginField(b []byte) (_ []byte, start int) {
	b = append(protowire.AppendVarint(b, tagOne), make([]byte, lengthBytes)...)
	return b, len(b)
}

// endField fills in the length of the last field of b. Its content begins at start.
func endField(b []byte, start int) []byte {
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

// fields calls each with every field of b, until each returns an error. v is the value of a varint,
// and data the bytes of a length-delimited field, which refer to b.
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

// The fields of etcdserverpb.TxnRequest and of its RequestOp.
const (
	tagCompare = 1<<3 | lenTag
	tagSuccess = 2<<3 | lenTag
	tagFailure = 3<<3 | lenTag
	tagOpTxn   = 4<<3 | lenTag
)

// maxTxnDepth limits the depth to which TxnMessages looks. For deeper messages it assumes as many as
// the bytes allow.
const maxTxnDepth = 8

// TxnMessages returns the number of messages that package proto creates for an encoded
// TxnRequest. Two bytes may become a message of about 200 bytes.
func TxnMessages(data []byte) int { return txnMessages(data, 0) }

func txnMessages(data []byte, depth int) (n int) {
	if depth > maxTxnDepth {
		return len(data) / 2
	}
	_ = fields(data, func(tag, _ uint64, field []byte) error { // package proto reports errors
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
