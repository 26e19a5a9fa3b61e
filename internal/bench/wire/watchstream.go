package wire

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/bench/load"
)

// receiver is the receiving side of a stream of watches.
type receiver interface {
	Recv() (*pb.WatchResponse, error)
}

// watchStream is one stream of watches, as etcd's API has it: the work of
// clientv3 for each watcher would be most of what is measured.
type watchStream struct {
	run      *fanOutRun
	endpoint string
	client   *clientv3.Client
	from     receiver
	timeIsUp func() bool

	// The rest is touched by the receiving goroutine only, until it has ended.
	watchers []watcher // by watch ID − firstID
	left     int       // watchers that have not ended
	event    *load.Tally
}

// watcher is one watch of a stream.
type watcher struct {
	order
	state watcherState
}

type watcherState uint8

const (
	watcherOn     watcherState = iota
	watcherDone                // it has seen the last put
	watcherFailed              // it was cancelled, or its stream failed
)

// firstID is the ID of a stream's first watcher; 0 asks the server for one.
const firstID = 1

func newWatchStream(r *fanOutRun, endpoint string) *watchStream {
	return &watchStream{run: r, endpoint: endpoint, event: load.NewTally()}
}

// open connects and creates n watchers.
func (s *watchStream) open(ctx context.Context, n int) error {
	var err error
	if s.client, err = newClient(s.endpoint); err != nil {
		return err
	}
	stream, err := pb.NewWatchClient(s.client.ActiveConnection()).Watch(ctx)
	if err != nil {
		return fmt.Errorf("open a stream of watches: %w", err)
	}
	s.timeIsUp = func() bool { return ctx.Err() != nil }
	s.watchers, s.left = make([]watcher, n), n
	if s.from = stream; s.run.Wrong != "" {
		s.from = newWrongStream(stream, s.run.Wrong, s.run.puts)
	}
	sent := make(chan error, 1)
	go func() { // it may have to wait until answers are taken
		for i := range n {
			create := &pb.WatchCreateRequest{Key: []byte(watchedKey), WatchId: int64(i + firstID)}
			if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
				sent <- fmt.Errorf("create a watch: %w", err)
				return
			}
		}
		sent <- nil
	}()
	return errors.Join(created(stream, n), <-sent)
}

// created waits until n watches are there. Nobody writes yet.
func created(from receiver, n int) error {
	for range n {
		resp, err := from.Recv()
		if err != nil {
			return fmt.Errorf("create a watch: %w", err)
		}
		if !resp.GetCreated() || resp.GetCanceled() {
			return fmt.Errorf("create watch %d: refused: %s", resp.GetWatchId(), resp.GetCancelReason())
		}
	}
	return nil
}

func (s *watchStream) close() {
	if s.client != nil {
		_ = s.client.Close() // nothing is under way
	}
}

// receive takes events until every watcher has seen the last put.
func (s *watchStream) receive() {
	for s.left > 0 {
		resp, err := s.from.Recv()
		if err != nil {
			s.fail(err)
			return
		}
		s.take(resp, time.Now())
	}
}

// fail is the end of the stream. If it was ended because time is up, events are
// missing, which finish counts; otherwise it broke, and promises nothing.
func (s *watchStream) fail(err error) {
	s.event.Fail(err)
	if s.timeIsUp() {
		return
	}
	for i := range s.watchers {
		if s.watchers[i].state == watcherOn {
			s.watchers[i].state = watcherFailed
		}
	}
}

func (s *watchStream) take(resp *pb.WatchResponse, at time.Time) {
	i := resp.GetWatchId() - firstID
	if i < 0 || i >= int64(len(s.watchers)) {
		s.event.Fail(fmt.Errorf("answer for watch %d of %d", resp.GetWatchId(), len(s.watchers)))
		return
	}
	w := &s.watchers[i]
	fresh := 0
	for _, e := range resp.GetEvents() {
		number, begun, ok := s.run.puts.decode(e.GetKv().GetValue())
		switch {
		case !ok: // of another measurement
		case number == lastPut:
			s.leave(w, watcherDone)
		case w.see(number, e.GetKv().GetModRevision(), s.run.puts.failed):
			s.run.window.note(s.event, at.Sub(begun), nil)
			fresh++
		}
	}
	if resp.GetCanceled() {
		s.event.Fail(fmt.Errorf("watch cancelled: %s", resp.GetCancelReason()))
		s.leave(w, watcherFailed)
	}
	if fresh > 0 {
		s.run.saw(fresh)
	}
}

func (s *watchStream) leave(w *watcher, to watcherState) {
	if w.state == watcherOn {
		w.state = to
		s.left--
	}
}

// finish adds what the stream has seen, once nobody receives.
func (s *watchStream) finish(r *FanOutResult) {
	for i := range s.watchers {
		w := &s.watchers[i]
		if w.state != watcherFailed {
			w.end(s.run.puts.acked, s.run.puts.failed)
		}
		r.Disorder.add(w.Disorder)
	}
	r.Event.Merge(s.event)
}
