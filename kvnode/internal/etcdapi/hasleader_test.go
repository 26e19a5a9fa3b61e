package etcdapi

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// A request that requires a leader is refused at once when there is none; others
// are the node's to decide.
func TestRequestsThatRequireALeaderAreRefusedWithoutOne(t *testing.T) {
	s := startServer(t, Config{})
	require := clientv3.WithRequireLeader(t.Context())
	get := &pb.RangeRequest{Key: []byte("k")}
	if _, err := s.kv.Range(require, get); err != nil {
		t.Errorf("Range under a leader = %v", err)
	}
	s.setLeader(0)
	_, err := s.kv.Range(require, get)
	wantStatus(t, "Range without a leader", err, rpctypes.ErrGRPCNoLeader)
	_, err = s.recv(require, get)
	wantStatus(t, "RangeStream without a leader", err, rpctypes.ErrGRPCNoLeader)
	if _, err := s.kv.Range(t.Context(), get); err != nil {
		t.Errorf("Range that requires no leader = %v", err)
	}
	require = metadata.AppendToOutgoingContext(t.Context(), rpctypes.MetadataRequireLeaderKey, "false")
	if _, err := s.kv.Range(require, get); err != nil {
		t.Errorf("Range with hasleader: false = %v", err)
	}
}

// idleStream is a stream whose handler only waits for its end.
type idleStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s idleStream) Context() context.Context { return s.ctx }

// ledNode has a leader that tests take away, and nothing else.
type ledNode struct {
	*fakeNode
}

func newLedNode() ledNode {
	n := &fakeNode{}
	n.mu.changed = make(chan struct{})
	n.leader.Store(1)
	return ledNode{n}
}

// serveIdle runs an idle stream that requires a leader and returns what became
// of it, and when.
func serveIdle(ctx context.Context, n Node, required bool) (ended <-chan error) {
	a := New(n, Config{ElectionTimeout: time.Second})
	if required {
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("hasleader", "true"))
	}
	done := make(chan error, 1)
	go func() {
		done <- a.interceptStream(nil, idleStream{ctx: ctx}, &grpc.StreamServerInfo{}, func(_ any, ss grpc.ServerStream) error {
			<-ss.Context().Done()
			return ss.Context().Err()
		})
	}()
	return done
}

// A stream that requires a leader survives an election, and is cut when there
// was no leader for three election timeouts, not before.
func TestStreamIsCutWhenThereIsNoLeaderForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newLedNode()
		ended := serveIdle(t.Context(), n, true)
		open := func(when string) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-ended:
				t.Fatalf("stream ended %s: %v", when, err)
			default:
			}
		}
		time.Sleep(time.Minute)
		open("under a leader")
		n.setLeader(2)
		time.Sleep(time.Minute)
		open("under another leader")

		n.setLeader(0)
		time.Sleep(3*time.Second - 1)
		open("during an election")
		n.setLeader(3)
		time.Sleep(time.Minute)
		open("after the election")

		n.setLeader(0)
		time.Sleep(2 * time.Second)
		n.setLeader(0) // says that something has changed; still nobody leads
		time.Sleep(time.Second - 1)
		open("just before the time is up")
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		select {
		case err := <-ended:
			wantStatus(t, "stream", err, rpctypes.ErrGRPCNoLeader)
		default:
			t.Fatal("stream goes on without a leader")
		}
	})
}

// A stream that does not ask for it goes on, and one whose client leaves ends as
// it would have without the watch.
func TestStreamsThatRequireNoLeaderGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newLedNode()
		ctx, leave := context.WithCancel(t.Context())
		free, bound := serveIdle(ctx, n, false), serveIdle(ctx, n, true)
		time.Sleep(time.Minute)
		leave()
		for name, ended := range map[string]<-chan error{"free": free, "bound": bound} {
			if err := <-ended; err != context.Canceled { //nolint:errorlint // the very error of the handler
				t.Errorf("%s stream ended with %v, want %v", name, err, context.Canceled)
			}
		}
	})
}
