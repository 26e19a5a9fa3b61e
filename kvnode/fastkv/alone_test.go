package fastkv

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A member that has lost its leader, and stays up, is left for one that leads: its writes
// would fail for as long as it is alone.
func TestAMemberWithoutALeaderIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		end := asked(func() error { _, err := r.get(t.Context()); return err })
		s := r.accept(1)
		s.answer(s.next().ID, &pb.RangeResponse{})
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		time.Sleep(pause)
		s.answers <- []byte{0x10, 1} // member 1 answers, and knows no leader
		synctest.Wait()
		r.wantBy(s, "while there is no other")
		synctest.Wait()
		if len(r.streams) != 1 {
			t.Fatalf("%d streams are opened once the member has no leader, want 1", len(r.streams))
		}
		better := r.accept(2)
		synctest.Wait()
		r.wantBy(better, "by a follower's")
		time.Sleep(pause)
		r.wantBy(better, "by a follower's, again")
		good := r.accept(1)
		synctest.Wait()
		r.wantBy(good, "by the leader's")
	})
}

// The metadata of the client's own context are not those of its requests: calls do not have
// them either.
func TestAStreamHasNoMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.client.streams.ctx = metadata.AppendToOutgoingContext(r.client.streams.ctx, "x-lease-read", "serializable")
		r.client.streams = newStreams(r.client.streams.ctx, r, func() []string { return nil })
		end := asked(func() error { _, err := r.get(t.Context()); return err })
		s := r.accept(1)
		if md, _ := metadata.FromOutgoingContext(s.ctx); len(md) != 0 {
			t.Errorf("the stream is opened with %v, want no metadata", md)
		}
		s.answer(s.next().ID, &pb.RangeResponse{})
		if err := <-end; err != nil {
			t.Fatal(err)
		}
	})
}

// A request with much metadata is a call: the server would end the stream of all others.
func TestMuchMetadata(t *testing.T) {
	for name, md := range map[string]metadata.MD{
		"long": {"a": {string(make([]byte, maxRequest))}}, "many": {"a": make([]string, maxRequest/32)},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			end := asked(func() error {
				count, err := r.get(metadata.NewOutgoingContext(t.Context(), md))
				if count != -1 {
					t.Errorf("%s: answered by the stream", name)
				}
				return err
			})
			r.accept(1)
			if err := <-end; err != nil {
				t.Error(err)
			}
		})
	}
}
