package wire

import pb "go.etcd.io/etcd/api/v3/etcdserverpb"

// Wrong is a way in which a stream of watches is wrong on purpose.
type Wrong string

// The ways. The zero value is right.
const (
	DropsEvent   Wrong = "watch-drops-an-event"
	RepeatsEvent Wrong = "watch-repeats-an-event"
	SwapsEvents  Wrong = "watch-swaps-two-events"
)

// Wrongs are all of them.
var Wrongs = []Wrong{DropsEvent, RepeatsEvent, SwapsEvents}

// wrongStream does what is wrong once, to the second answer with events. It
// leaves the end alone: waiting for that would only take longer.
type wrongStream struct {
	receiver
	wrong   Wrong
	puts    *puts
	answers int // with events
	held    *pb.WatchResponse
	next    []*pb.WatchResponse
}

func newWrongStream(from receiver, wrong Wrong, p *puts) *wrongStream {
	return &wrongStream{receiver: from, wrong: wrong, puts: p}
}

// Recv implements receiver.
func (s *wrongStream) Recv() (*pb.WatchResponse, error) {
	for {
		if len(s.next) > 0 {
			resp := s.next[0]
			s.next = s.next[1:]
			return resp, nil
		}
		resp, err := s.receiver.Recv()
		if err != nil {
			return nil, err
		}
		s.pass(resp)
	}
}

// pass decides what comes next of an answer.
func (s *wrongStream) pass(resp *pb.WatchResponse) {
	if len(resp.GetEvents()) > 0 && !s.isLast(resp) {
		s.answers++
	}
	victim := s.answers == 2 && s.held == nil && !s.isLast(resp)
	switch {
	case victim && s.wrong == DropsEvent:
		s.answers++
	case victim && s.wrong == RepeatsEvent:
		s.answers++
		s.next = append(s.next, resp, resp)
	case victim && s.wrong == SwapsEvents:
		s.held = resp
	case s.held != nil && s.held.GetWatchId() == resp.GetWatchId():
		s.answers++
		s.next = append(s.next, resp, s.held)
		s.held = nil
	default:
		s.next = append(s.next, resp)
	}
}

func (s *wrongStream) isLast(resp *pb.WatchResponse) bool {
	for _, e := range resp.GetEvents() {
		if number, _, ok := s.puts.decode(e.GetKv().GetValue()); ok && number == lastPut {
			return true
		}
	}
	return false
}
