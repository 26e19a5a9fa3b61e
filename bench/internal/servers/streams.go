package servers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/kvclient"
)

// Streams are open streams of watches, each with one watch of a key of its own.
type Streams struct {
	// Took is the time from the first request until the last watch was created.
	Took    time.Duration
	clients []*clientv3.Client
	cancel  context.CancelFunc
}

// streamsPatience is the timeout of opening all streams.
const streamsPatience = time.Minute

// OpenStreams opens n streams on so many connections. The streams stay until
// Close.
func OpenStreams(ctx context.Context, endpoint string, n, conns int) (*Streams, error) {
	all, err := dial([]string{endpoint}, conns)
	if err != nil {
		return nil, err
	}
	s := &Streams{clients: all}
	for _, client := range all {
		if err := connect(ctx, client); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	ctx, s.cancel = context.WithCancel(ctx)
	late := time.AfterFunc(streamsPatience, s.cancel)
	defer late.Stop()
	begun := time.Now()
	errs := make(chan error, conns)
	var wg sync.WaitGroup
	for i, client := range s.clients {
		first, end := n*i/conns, n*(i+1)/conns
		wg.Go(func() {
			if err := open(ctx, client, first, end); err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	s.Took = time.Since(begun)
	select {
	case err := <-errs: // the others are much like the first
		return nil, errors.Join(fmt.Errorf("open %d streams of watches on %d connections, after %v: %w", n, conns, s.Took.Round(time.Millisecond), err), s.Close())
	default:
		return s, nil
	}
}

// open opens the streams from number first to before end on one connection.
func open(ctx context.Context, client *clientv3.Client, first, end int) error {
	var streams []pb.Watch_WatchClient
	for i := first; i < end; i++ {
		stream, err := pb.NewWatchClient(client.ActiveConnection()).Watch(ctx)
		if err != nil {
			return err
		}
		create := &pb.WatchCreateRequest{Key: []byte(keyName(i))}
		// An error of sending is that the stream has ended; receiving says why.
		_ = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}})
		streams = append(streams, stream)
	}
	for i, stream := range streams {
		resp, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("stream %d of its connection: %w", i+1, err)
		}
		if !resp.GetCreated() || resp.GetCanceled() {
			return fmt.Errorf("stream %d of its connection: refused: %s", i+1, resp.GetCancelReason())
		}
	}
	return nil
}

// Close ends the streams and their connections, once.
func (s *Streams) Close() error {
	if s.cancel != nil {
		s.cancel()
	}
	err := kvclient.Close(s.clients)
	s.clients = nil
	return err
}
