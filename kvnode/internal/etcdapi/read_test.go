package etcdapi

import (
	"context"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// The metadata says how to read, and goes before the request's own flag; the
// trailers say how it was read.
func TestMetadataChoosesHowToRead(t *testing.T) {
	for _, c := range []struct {
		asked        string
		serializable bool
		want         kvnode.ReadMode
		path         string
	}{
		{"", false, kvnode.ReadAuto, "lease"},
		{"", true, kvnode.ReadSerializable, "serializable"},
		{"auto", false, kvnode.ReadAuto, "lease"},
		{"auto", true, kvnode.ReadSerializable, "serializable"},
		{"lease", false, kvnode.ReadLease, "lease"},
		{"read-index", false, kvnode.ReadIndex, "read_index"},
		{"read-index", true, kvnode.ReadIndex, "read_index"},
		{"log", false, kvnode.ReadLog, "log"},
		{"serializable", false, kvnode.ReadSerializable, "serializable"},
	} {
		t.Run(c.asked, func(t *testing.T) {
			s := startServer(t, Config{})
			ctx := t.Context()
			if c.asked != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, fastwire.MetadataReadMode, c.asked)
			}
			var trailer metadata.MD
			_, err := s.kv.Range(ctx, &pb.RangeRequest{Key: []byte("k"), Serializable: c.serializable}, grpc.Trailer(&trailer))
			if err != nil {
				t.Fatal(err)
			}
			if got := s.lastMode(t); got != c.want {
				t.Errorf("mode = %v, want %v", got, c.want)
			}
			if got := strings.Join(trailer.Get(fastwire.TrailerReadPath), ","); got != c.path {
				t.Errorf("trailer %s = %q, want %q", fastwire.TrailerReadPath, got, c.path)
			}
			remaining := ""
			if c.path == "lease" {
				remaining = "850"
			}
			if got := strings.Join(trailer.Get(fastwire.TrailerRemaining), ","); got != remaining {
				t.Errorf("trailer %s = %q, want %q", fastwire.TrailerRemaining, got, remaining)
			}
		})
	}
}

// Trailers may be left to those who ask; then auto is a way to ask.
func TestTrailersOnDemand(t *testing.T) {
	s := startServer(t, Config{TrailersOnDemand: true})
	for asked, want := range map[string]string{"": "", "auto": "lease", "log": "log"} {
		ctx := t.Context()
		if asked != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, fastwire.MetadataReadMode, asked)
		}
		var trailer metadata.MD
		if _, err := s.kv.Range(ctx, &pb.RangeRequest{Key: []byte("k")}, grpc.Trailer(&trailer)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(trailer.Get(fastwire.TrailerReadPath), ","); got != want {
			t.Errorf("trailer %s of a request that asked for %q = %q, want %q", fastwire.TrailerReadPath, asked, got, want)
		}
	}
}

// A mode that there is not, or two of them, is the client's mistake, and is
// named.
func TestUnknownReadModeIsNamed(t *testing.T) {
	s := startServer(t, Config{})
	for _, asked := range [][]string{{"fast"}, {""}, {"Lease"}, {"lease", "log"}} {
		ctx := t.Context()
		for _, v := range asked {
			ctx = metadata.AppendToOutgoingContext(ctx, fastwire.MetadataReadMode, v)
		}
		_, err := s.kv.Range(ctx, &pb.RangeRequest{Key: []byte("k")})
		text := status.Convert(err).Message()
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(text, strings.Join(asked, ", ")) ||
			!strings.Contains(text, "auto, lease, read-index, log or serializable") {
			t.Errorf("Range in mode %q = %v, want InvalidArgument that names it and the choices", asked, err)
		}
	}
	if len(s.mu.modes) != 0 {
		t.Errorf("node was asked for reads %v", s.mu.modes)
	}
}

// What is written while a read waits to be permitted, the read sees: the value is
// fetched afterwards.
func TestValueIsFetchedAfterAdmission(t *testing.T) {
	for _, c := range []struct {
		name string
		read func(*server) (string, error)
	}{
		{"get", func(s *server) (string, error) { return s.valueOf(&pb.RangeRequest{Key: []byte("k")}) }},
		{"range", func(s *server) (string, error) {
			return s.valueOf(&pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")})
		}},
		{"stream", func(s *server) (string, error) {
			r, err := s.recv(context.Background(), &pb.RangeRequest{Key: []byte("k")})
			return value(r.GetRangeResponse()), err
		}},
		{"txn", func(s *server) (string, error) {
			r, err := s.kv.Txn(context.Background(), &pb.TxnRequest{Success: ops(opGet("k"))})
			if err != nil {
				return "", err
			}
			return value(r.GetResponses()[0].GetResponseRange()), nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startServer(t, Config{})
			s.put(t, "k", "old")
			s.onRead = func(context.Context, kvnode.ReadMode) error {
				s.apply(&store.Command{Request: &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k"), Value: []byte("new")}}})
				return nil
			}
			if got, err := c.read(s); err != nil || got != "new" {
				t.Errorf("%s = %q, %v; want what was written before it was permitted", c.name, got, err)
			}
		})
	}
}

func (s *server) valueOf(r *pb.RangeRequest) (string, error) {
	resp, err := s.kv.Range(context.Background(), r)
	return value(resp), err
}

func value(r *pb.RangeResponse) string {
	if len(r.GetKvs()) == 0 {
		return ""
	}
	return string(r.GetKvs()[0].GetValue())
}

// The trailers are built once and shared, whatever the remaining time.
func TestTrailersOfEveryRemainingTime(t *testing.T) {
	for _, c := range []struct {
		read kvnode.Read
		want string
	}{
		{kvnode.Read{Path: "lease"}, "0"},
		{kvnode.Read{Path: "lease", Remaining: -1}, "0"},
		{kvnode.Read{Path: "lease", Remaining: 4095e6}, "4095"},
		{kvnode.Read{Path: "lease", Remaining: 4096e6}, "4096"},
		{kvnode.Read{Path: "lease", Remaining: 4096e6}, "4096"},
		{kvnode.Read{Path: "joined"}, ""},
		{kvnode.Read{Path: "something new"}, ""},
	} {
		md := trailer(c.read)
		if got := strings.Join(md[fastwire.TrailerRemaining], ","); got != c.want {
			t.Errorf("trailer(%v) has %q remaining, want %q", c.read, got, c.want)
		}
		if got := md[fastwire.TrailerReadPath]; len(got) != 1 || got[0] != c.read.Path {
			t.Errorf("trailer(%v) has path %q", c.read, got)
		}
	}
}
