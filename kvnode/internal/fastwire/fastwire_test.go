package fastwire

import (
	"bytes"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// described returns the messages in fast.proto.
func described(tb testing.TB) protoreflect.MessageDescriptors {
	tb.Helper()
	text, err := os.ReadFile("../../fastkv/fast.proto")
	if err != nil {
		tb.Fatal(err)
	}
	scalars := map[string]descriptorpb.FieldDescriptorProto_Type{
		"uint64": descriptorpb.FieldDescriptorProto_TYPE_UINT64, "uint32": descriptorpb.FieldDescriptorProto_TYPE_UINT32,
		"int64": descriptorpb.FieldDescriptorProto_TYPE_INT64, "bool": descriptorpb.FieldDescriptorProto_TYPE_BOOL,
		"string": descriptorpb.FieldDescriptorProto_TYPE_STRING, "bytes": descriptorpb.FieldDescriptorProto_TYPE_BYTES,
	}
	file := &descriptorpb.FileDescriptorProto{Name: new("fast.proto"), Syntax: new("proto3")}
	field := regexp.MustCompile(`(?m)^  (repeated )?(\w+) (\w+) = (\d+);`)
	for _, m := range regexp.MustCompile(`(?s)message (\w+) {(.*?)\n}`).FindAllStringSubmatch(string(text), -1) {
		d := &descriptorpb.DescriptorProto{Name: new(m[1])}
		for _, f := range field.FindAllStringSubmatch(m[2], -1) {
			n, err := strconv.Atoi(f[4])
			if err != nil {
				tb.Fatal(err)
			}
			fd := &descriptorpb.FieldDescriptorProto{
				Name: new(f[3]), Number: new(int32(n)), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
			}
			if f[1] != "" {
				fd.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
			}
			if kind, ok := scalars[f[2]]; ok {
				fd.Type = kind.Enum()
			} else {
				fd.Type, fd.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), new("."+f[2])
			}
			d.Field = append(d.Field, fd)
		}
		file.MessageType = append(file.MessageType, d)
	}
	fd, err := protodesc.NewFile(file, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if got := fd.Messages().Len(); got != 4 {
		tb.Fatalf("fast.proto has %d messages, want 4", got)
	}
	return fd.Messages()
}

// fill sets the fields of m to those of the struct v, by name.
func fill(m *dynamicpb.Message, v any) *dynamicpb.Message {
	for field, value := range reflect.ValueOf(v).Fields() {
		fd := m.Descriptor().Fields().ByName(protoreflect.Name(strings.ToLower(field.Name)))
		switch {
		case value.IsZero():
		case fd.IsList():
			list := m.Mutable(fd).List()
			for i := range value.Len() {
				list.Append(protoreflect.ValueOf(value.Index(i).Bytes()))
			}
		case fd.Kind() == protoreflect.StringKind:
			m.Set(fd, protoreflect.ValueOf(string(value.Bytes())))
		case fd.Kind() == protoreflect.Int64Kind:
			m.Set(fd, protoreflect.ValueOf(value.Int()))
		default:
			m.Set(fd, protoreflect.ValueOf(value.Interface()))
		}
	}
	return m
}

// same fails unless protobuf decodes encoded as messages, and this package decodes protobuf's
// encoding. all and one are the names of the list and of its element.
func same[T any](tb testing.TB, all, one string, messages []T, encoded []byte, decode func([]byte) ([]T, error)) {
	tb.Helper()
	d := described(tb)
	want := dynamicpb.NewMessage(d.ByName(protoreflect.Name(all)))
	for _, m := range messages {
		want.Mutable(want.Descriptor().Fields().ByNumber(1)).List().
			Append(protoreflect.ValueOf(fill(dynamicpb.NewMessage(d.ByName(protoreflect.Name(one))), m)))
	}
	got := want.New().Interface()
	if err := proto.Unmarshal(encoded, got); err != nil || !proto.Equal(got, want) {
		tb.Errorf("protobuf reads %v, %v; want %v", got, err, want)
	}
	theirs, err := proto.Marshal(want)
	if err != nil {
		tb.Fatal(err)
	}
	for _, data := range [][]byte{encoded, theirs} {
		if got, err := decode(data); err != nil || !reflect.DeepEqual(got, messages) {
			tb.Errorf("decoded %+v, %v; want %+v", got, err, messages)
		}
	}
}

func requests(message []byte) (all []Request, err error) {
	err = Requests(message, func(data []byte) error {
		var r Request
		err := r.Decode(data)
		all = append(all, r)
		return err
	})
	return all, err
}

func answers(message []byte) (all []Answer, err error) {
	_, err = Answers(message, func(a Answer) { all = append(all, a) })
	return all, err
}

// The codec agrees with code generated from fast.proto.
func TestTheCodecIsThatOfTheDescription(t *testing.T) {
	rs := []Request{
		{ID: 1 << 60, Method: []byte("Range"), Message: bytes.Repeat([]byte{7}, 300), Metadata: [][]byte{[]byte("hasleader"), []byte("true")}, Timeout: 5e9},
		{ID: 3, Cancel: true},
		{},
		{ID: 4, Timeout: -1},
	}
	var b []byte
	for _, r := range rs {
		b = AppendRequest(b, r)
	}
	same(t, "Requests", "Request", rs, b, requests)

	as := []Answer{{ID: 1, Message: []byte("m"), More: true}, {ID: 1 << 33, Code: 14, Text: []byte("gone")}, {}}
	b = nil
	for _, a := range as {
		b = AppendAnswer(b, a)
	}
	same(t, "Answers", "Answer", as, b, answers)

	b = append(AppendMember(nil, 5, 6), b...)
	if member, leader := MemberState(b); member != 5 || leader != 6 {
		t.Errorf("MemberState() = %d, %d, want 5, 6", member, leader)
	}
	want := State{Member: 5, Leader: 6, Stopping: true, Last: 7}
	if s, err := Answers(AppendStopping(b, 7), func(Answer) {}); s != want || err != nil {
		t.Errorf("Answers() = %+v, %v, want %+v", s, err, want)
	}
}

// Fields of later versions are skipped, and truncated messages are errors.
func TestWhatIsNotKnown(t *testing.T) {
	whole := AppendRequest(nil, Request{ID: 1, Method: []byte("Put"), Message: []byte("m")})
	known, err := requests(slices.Concat([]byte{0x08, 1, 0x7d, 1, 2, 3, 4}, whole, []byte{0x5a, 2, 9, 9}))
	if err != nil || len(known) != 1 || known[0].ID != 1 {
		t.Errorf("a request among unknown fields = %+v, %v, want it alone", known, err)
	}
	for n := 1; n < len(whole); n++ {
		if got, err := requests(whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are %+v, want an error", n, len(whole), got)
		}
	}
}

func TestTheCodecPassesOtherMessagesOn(t *testing.T) {
	c := NewCodec()
	data, err := c.Marshal(wrapperspb.String("x"))
	if err != nil {
		t.Fatal(err)
	}
	back := new(wrapperspb.StringValue)
	if err := c.Unmarshal(data, back); err != nil || back.GetValue() != "x" {
		t.Errorf("a message comes back as %v, %v", back, err)
	}
	var raw Raw
	if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer("ab"), mem.SliceBuffer("c")}, &raw); err != nil || string(raw) != "abc" {
		t.Errorf("bytes come as %q, %v", raw, err)
	}
}

// Any bytes are decoded as protobuf decodes them, or rejected by both.
func FuzzBytesAreReadAsByProtobuf(f *testing.F) {
	f.Add(AppendRequest(nil, Request{ID: 1, Method: []byte("Range"), Message: []byte("m"), Metadata: [][]byte{{1}, {2}}, Timeout: 1, Cancel: true}))
	f.Add(AppendAnswer(AppendMember(nil, 1, 2), Answer{ID: 1, Code: 2, Text: []byte("t"), Message: []byte("m"), More: true}))
	f.Add([]byte{0x0a, 0x80, 0x80, 0x80, 0x80, 0x80})
	d := described(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		theirs := dynamicpb.NewMessage(d.ByName("Requests"))
		bad := proto.Unmarshal(data, theirs)
		rs, err := requests(data)
		// Protobuf refuses text that is not UTF-8 as well, and knows groups.
		if bad == nil && err != nil {
			t.Fatalf("requests %x: %v, want %v", data, err, theirs)
		}
		if bad == nil {
			var b []byte
			for _, r := range rs {
				b = AppendRequest(b, r)
			}
			again := theirs.New().Interface()
			if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, again); err != nil {
				t.Fatal(err)
			}
			known := theirs.New().Interface()
			if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, known); err != nil || !proto.Equal(again, known) {
				t.Fatalf("requests %x are %v, want %v", data, again, known)
			}
		}
		if as, err := answers(data); err == nil && len(as) > len(data) {
			t.Fatalf("%d answers in %d bytes", len(as), len(data))
		}
	})
}

// The messages of a transaction are counted before decoding, at any depth.
func TestMessagesOfATransaction(t *testing.T) {
	get := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("k")}}}
	txn := &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: []byte("a")}, {}},
		Success: []*pb.RequestOp{get, get, {}},
		Failure: []*pb.RequestOp{get},
	}
	count := func(txn *pb.TxnRequest) int {
		data, err := proto.Marshal(txn)
		if err != nil {
			t.Fatal(err)
		}
		return TxnMessages(data)
	}
	if n := count(txn); n != 9 {
		t.Errorf("%d messages, want 2 compares, 4 operations and 3 gets", n)
	}
	for depth := 1; depth <= 2*maxTxnDepth; depth++ {
		txn = &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: txn}}}}
		if n := count(txn); n < 9+2*min(depth, maxTxnDepth) || depth <= maxTxnDepth && n != 9+2*depth {
			t.Errorf("%d messages at depth %d, want %d", n, depth, 9+2*depth)
		}
	}
	if n := TxnMessages([]byte{0x0a, 0, 0x0a, 0, 0x0a}); n != 2 {
		t.Errorf("%d messages before the bytes end, want 2", n)
	}
}
