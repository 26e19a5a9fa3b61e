package etcdapi

import (
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// FuzzAStreamSurvivesItsClient: whatever bytes a client sends, twice, the stream answers what can
// be told from them and goes on, or ends as one that cannot be understood; then nothing of it is
// under way or charged.
func FuzzAStreamSurvivesItsClient(f *testing.F) {
	key := []byte("k")
	get, put := []byte("Range"), []byte("Put")
	data, err := proto.Marshal(&pb.PutRequest{Key: key, Value: key})
	if err != nil {
		f.Fatal(err)
	}
	for _, requests := range [][]fastwire.Request{
		{{ID: 1, Method: get, Message: fastwire.AppendGet(nil, "k")}, {ID: 2, Method: put, Message: data}},
		{{ID: 1, Method: put, Message: data}, {ID: 1, Method: put, Message: data}},
		{{ID: 1, Method: put, Message: data, Timeout: 1}, {ID: 1, Cancel: true}, {ID: 2, Method: put, Message: data, Timeout: -1}},
		{{ID: 1, Method: get, Metadata: [][]byte{key}}},
		{{ID: 1, Method: get, Metadata: [][]byte{[]byte(fastwire.MetadataReadMode), []byte("log")}, Message: fastwire.AppendGet(nil, "k")}},
		{{ID: 1, Method: []byte("Compact")}, {Method: []byte("Watch")}},
	} {
		var message fastwire.Raw
		for _, r := range requests {
			message = fastwire.AppendRequest(message, r)
		}
		f.Add([]byte(message), true)
		f.Add([]byte(message), false)
	}
	f.Add([]byte{0xff}, true)
	f.Add([]byte{0x0a, 0x80}, false)
	f.Fuzz(func(t *testing.T, message []byte, leased bool) {
		onStream(t, func(r *fastRig) {
			r.leased.Store(leased)
			go func() { // a client that reads
				for {
					select {
					case <-r.out:
					case <-r.over:
						return
					}
				}
			}()
			for range 2 {
				select {
				case r.in <- message:
				case <-r.over:
				}
				time.Sleep(time.Minute) // of virtual time
			}
			select {
			case <-r.over:
				if code := status.Code(r.ended); code != codes.InvalidArgument {
					t.Errorf("after %x the stream has ended with %v, want InvalidArgument", message, r.ended)
				}
			default:
			}
			synctest.Wait()
			if under, bytes := r.api.inFlight.Load(), r.api.fast.bytes.Load(); under != 0 || bytes != 0 {
				t.Errorf("after %x %d items are under way, with %d bytes", message, under, bytes)
			}
		})
	})
}
