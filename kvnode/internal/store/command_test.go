package store_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/internal/store"
)

func TestCommandsComeBack(t *testing.T) {
	for _, c := range []store.Command{
		{},
		{ID: 1},
		{ID: math.MaxUint64, RequiredTerm: math.MaxUint64},
		{ID: 300, RequiredTerm: 1, Request: put("key", "value")},
		{Request: &pb.InternalRaftRequest{}},
		{ID: 1, RequiredTerm: 2, Generations: []uint64{0, 300, math.MaxUint64}, Request: put("key", "value")},
		{ID: 1, Generations: []uint64{}, Request: put("key", "value")},
		{ID: 2, Register: &store.Member{ID: math.MaxUint64, Name: "n", PeerURLs: []string{"http://h:1"}, ClientURLs: []string{"a", "b"}, Learner: true, Instance: "i"}},
	} {
		data := encode(t, &c)
		got, err := store.DecodeCommand(data)
		if err != nil || got.ID != c.ID || got.RequiredTerm != c.RequiredTerm || !proto.Equal(got.Request, c.Request) || !reflect.DeepEqual(got.Generations, c.Generations) || !reflect.DeepEqual(got.Register, c.Register) {
			t.Errorf("DecodeCommand(%x) = %+v, %v, want %+v", data, got, err, c)
		}
	}
}

func TestCommandsThatAreMalformed(t *testing.T) {
	for name, data := range map[string][]byte{
		"kind alone":               {0x10},
		"no term":                  {0x10, 1},
		"endless ID":               bytes.Repeat([]byte{0xff}, 30),
		"unknown kind":             {0x14, 0, 0},
		"no number of generations": {0x13, 0, 0},
		"too few generations":      {0x13, 0, 0, 2, 1},
		"an endless generation":    append([]byte{0x13, 0, 0, 1}, bytes.Repeat([]byte{0xff}, 30)...),
		"later version":            {0x21, 0, 0},
		"nothing with a tail":      {0x10, 0, 0, 1},
		"cut request":              {0x11, 0, 0, 0x22, 5, 1},
		"cut registration":         {0x12, 0, 0, '{'},
	} {
		if c, err := store.DecodeCommand(data); err == nil {
			t.Errorf("DecodeCommand(%s) = %+v, want an error", name, c)
		}
	}
	both := store.Command{Request: put("a", "b"), Register: &store.Member{}}
	if data, err := both.Encode(); err == nil {
		t.Errorf("Encode(two payloads) = %x, want an error", data)
	}
	if c, err := store.DecodeCommand(nil); err != nil || c.Request != nil || c.Register != nil {
		t.Errorf("DecodeCommand(nil) = %+v, %v, want a command without effect", c, err)
	}
}

// FuzzWithRequiredTermChangesNothingElse: WithRequiredTerm changes no other field, and not its argument.
func FuzzWithRequiredTermChangesNothingElse(f *testing.F) {
	for _, c := range []store.Command{{}, {ID: math.MaxUint64, RequiredTerm: 127, Request: put("k", "v")}, {ID: 1, RequiredTerm: 2, Generations: []uint64{300}, Request: put("k", "v")}, {ID: 3, Register: &store.Member{ID: 1}}} {
		f.Add(encode(f, &c), uint64(128))
	}
	f.Add([]byte{0x11, 0x80}, uint64(1))
	f.Add([]byte{0x11, 1, 0x80}, uint64(1))
	f.Add([]byte{}, uint64(1))
	f.Fuzz(func(t *testing.T, data []byte, term uint64) {
		before := bytes.Clone(data)
		got := store.WithRequiredTerm(data, term)
		if !bytes.Equal(data, before) {
			t.Fatalf("WithRequiredTerm(%x) has changed what it was given", before)
		}
		want, err := store.DecodeCommand(data)
		if err != nil || len(data) == 0 {
			if c, again := store.DecodeCommand(got); (err == nil) != (again == nil) {
				t.Fatalf("WithRequiredTerm(%x) = %x, which is %+v, %v; before it was %v", data, got, c, again, err)
			}
			return
		}
		want.RequiredTerm = term
		if c, err := store.DecodeCommand(got); err != nil || !reflect.DeepEqual(encode(t, c), encode(t, want)) {
			t.Errorf("WithRequiredTerm(%x, %d) = %x, which is %+v, %v, want %+v", data, term, got, c, err, want)
		}
	})
}

// A LeaseRevoke or LeaseCheckpoint may not get a required term; all other commands may.
func TestWhatEndsATTLLeaseMayNotRequireATerm(t *testing.T) {
	for name, c := range map[string]*store.Command{
		"revoke":     {Request: &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{}}},
		"checkpoint": {Request: &pb.InternalRaftRequest{LeaseCheckpoint: &pb.LeaseCheckpointRequest{}}},
		"required":   {RequiredTerm: 1, Request: put("k", "v")},
	} {
		if c.MayRequireTerm() {
			t.Errorf("MayRequireTerm() of %s = true, want false", name)
		}
	}
	for name, c := range map[string]*store.Command{
		"put":     {Request: put("k", "v")},
		"grant":   {Request: &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{}}},
		"nothing": {},
	} {
		if !c.MayRequireTerm() {
			t.Errorf("MayRequireTerm() of %s = false, want true", name)
		}
	}
}

// FuzzDecodePut compares the decoder of puts with package proto. Members with and without the
// decoder must read all entries alike.
func FuzzDecodePut(f *testing.F) {
	whole := &pb.PutRequest{Key: []byte("key"), Value: []byte("value"), Lease: -1, PrevKv: true, IgnoreValue: true, IgnoreLease: true}
	for _, r := range []*pb.InternalRaftRequest{
		{Put: whole},
		put("", ""), put("key", ""),
		{Put: &pb.PutRequest{IgnoreLease: true}},
		{},
		{Put: whole, Header: &pb.RequestHeader{ID: 1}},
		{Put: whole, ID: 1},
		del("a", "b"),
		{Put: whole, Range: &pb.RangeRequest{}},
	} {
		f.Add(encode(f, &store.Command{Request: r})[3:])
	}
	for _, odd := range []string{
		"\x22\x06\x0a\x01a\x0a\x01b",                                                                        // the key twice
		"\x22\x06\x12\x01a\x0a\x01b",                                                                        // out of order
		"\x22\x03\x0a\x01a\x22\x03\x12\x01b",                                                                // two puts, which are merged
		"\x22\x05\x0a\x01a\x12\x00",                                                                         // a value that is empty
		"\x22\x08\x0a\x01a\x12\x01b\x12\x00",                                                                // after one that is not
		"\x22\x05\x0a\x01a\x38\x01",                                                                         // an unknown field
		"\x22\x04\x0a\x81\x00a", "\x22\x02\x18\x80", "\x22\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", // numbers
		"\x22\x02\x20\x02", "\x22\x02\x0b\x0c", "\x22\x00", "\x22\x80\x00", "\x22", "\x22\x05\x0a",
	} {
		f.Add([]byte(odd))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		want := &pb.InternalRaftRequest{}
		bad := proto.Unmarshal(data, want)
		got, err := store.DecodeCommand(append([]byte{0x11, 0, 0}, data...))
		switch {
		case (err == nil) != (bad == nil):
			t.Fatalf("DecodeCommand(%x) = %v, %v, want %v, %v", data, got, err, want, bad)
		case err == nil && !proto.Equal(got.Request, want):
			t.Fatalf("DecodeCommand(%x) = %v, want %v", data, got.Request, want)
		case err == nil && (got.Request.GetPut().GetValue() == nil) != (want.GetPut().GetValue() == nil):
			t.Fatalf("DecodeCommand(%x) has the value %#v, want %#v", data, got.Request.GetPut().GetValue(), want.GetPut().GetValue())
		}
	})
}

// A put is decoded without package proto, with three allocations, and its value does not share
// memory with the entry.
func TestAPutIsDecodedByHand(t *testing.T) {
	data := encode(t, &store.Command{ID: 1, Request: put("key", "value")})
	c, err := store.DecodeCommand(data)
	if err != nil {
		t.Fatal(err)
	}
	clear(data)
	if got := string(c.Request.GetPut().GetValue()); got != "value" {
		t.Errorf("the value is %q when the entry has changed, want a copy", got)
	}
	data = encode(t, &store.Command{ID: 1, Request: put("key", "value")})
	if n := testing.AllocsPerRun(100, func() { _, _ = store.DecodeCommand(data) }); n > 3 {
		t.Errorf("%v allocations, want 3: the command, the request, the value", n)
	}
}

// addSeeds adds the pairs of quoted strings in a file, which fuzzing has found.
func addSeeds(f *testing.F, path string) {
	f.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var one, two string
		if _, err := fmt.Sscanf(line, "%q\t%q", &one, &two); err != nil {
			f.Fatalf("%s: %q: %v", path, line, err)
		}
		f.Add([]byte(one), []byte(two))
	}
}

// FuzzApplyIsDeterministic applies arbitrary entries to two replicas, one of which restarts from a
// checkpoint in between. Both must return the same results and hashes, and must not panic.
func FuzzApplyIsDeterministic(f *testing.F) {
	nested := txn(&pb.TxnRequest{
		Compare: []*pb.Compare{{Key: []byte("a"), RangeEnd: []byte{0}, Target: pb.Compare_VERSION, Result: pb.Compare_GREATER}},
		Success: []*pb.RequestOp{opPut("a", "2"), opTxn(&pb.TxnRequest{Success: []*pb.RequestOp{opRange("a", "\x00"), opDelete("a", "z")}})},
		Failure: []*pb.RequestOp{{}, opTxn(nil)},
	})
	for _, r := range []*pb.InternalRaftRequest{
		put("a", "1"), del("a", "\x00"), nested, compact(2), activate(1, pb.AlarmType_CORRUPT),
		{},
		txn(&pb.TxnRequest{Success: []*pb.RequestOp{opDelete("a", ""), {Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("a"), IgnoreValue: true}}}}}),
	} {
		f.Add(encode(f, &store.Command{ID: 1, Request: r}), encode(f, &store.Command{RequiredTerm: 1, Request: put("b", "2")}))
	}
	f.Add(encode(f, &store.Command{Register: &store.Member{ID: 1, Name: "n"}}), []byte{0x10})
	addSeeds(f, "testdata/apply_seeds.txt")
	f.Fuzz(func(t *testing.T, one, two []byte) {
		backend := newBackend()
		a, b := openStore(t, newBackend()), openStore(t, backend)
		defer func() { shut(t, a); shut(t, b) }()
		entries := [][]byte{encode(t, &store.Command{Request: put("a", "1")}), one, two, one}
		for i, data := range entries {
			index := uint64(i + 1)
			got, want := b.Apply(index, 1, data), a.Apply(index, 1, data)
			if got.ID != want.ID || got.Err != want.Err || !proto.Equal(got.Response, want.Response) { //nolint:errorlint // the very same
				t.Fatalf("Apply(%x) = %+v and %+v", data, got, want)
			}
			if i == 1 {
				checkpoint(t, b)
				shut(t, b)
				b = openStore(t, backend)
			}
		}
		sameHash(t, a, b)
		if !reflect.DeepEqual(a.Members(), b.Members()) || len(a.Alarms()) != len(b.Alarms()) {
			t.Fatalf("members %v and %v, alarms %v and %v", a.Members(), b.Members(), a.Alarms(), b.Alarms())
		}
	})
}
