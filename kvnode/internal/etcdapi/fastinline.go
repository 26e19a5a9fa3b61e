package etcdapi

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/metadata"

	"github.com/leaderlease/go/kvnode/internal/etcdapi/callmetrics"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
	"github.com/leaderlease/go/kvnode/internal/requests"
)

// place answers gets where they are received. It is for one goroutine.
type place struct {
	may      bool                // the stream has no wish of its own how it is read
	requires bool                // a leader, of which the stream's metadata tell
	calls    *callmetrics.Method // nil if calls are not counted

	leased bool      // the lease permits reads to all that have arrived
	free   bool      // there is room, and nothing else is under way
	at     time.Time // when the next item begins; zero if that has not been looked up
	out    []byte    // answers that are not queued yet
	buf    *[]byte   // that out is from; nil if there are none
	done   uint64    // how many
}

// placeBytes is about how many bytes of answers are queued at once. More: the first of them are
// sent later. Fewer: who receives and who sends meet more often.
const placeBytes = 16 << 10

// placeBuffers are what answers in place are put into, until they are queued: a stream that has
// nothing to answer has none.
var placeBuffers = sync.Pool{New: func() any { return new([]byte) }}

func (p *place) init(ctx context.Context, a *API) {
	md, _ := metadata.FromIncomingContext(ctx)
	p.may, p.requires = len(md.Get(fastwire.MetadataReadMode)) == 0, requiresLeader(ctx)
	if a.cfg.Metrics != nil {
		p.calls = a.cfg.Metrics.Unary(pb.KV_Range_FullMethodName)
	}
}

// answerInPlace answers a get of one key, if that cannot wait for anything: the lease permits
// it, and its answer is small. Gets with metadata or options are rare, and go the long way.
//
// What the interceptors do is done here once more, for less: the same is counted and bounded. It
// is over before the next one begins, so it is not counted as under way.
func (s *fastStream) answerInPlace(r *fastwire.Request) (answered bool) {
	p := &s.place
	if !p.leased || len(r.Metadata) > 0 || string(r.Method) != "Range" {
		return false
	}
	key, ok := fastwire.Get(r.Message)
	if !ok {
		return false
	}
	if p.buf == nil {
		p.buf, _ = placeBuffers.Get().(*[]byte)
		p.out = (*p.buf)[:0]
	}
	before, done := len(p.out), p.done
	defer func() {
		if v := recover(); v != nil {
			p.out, p.done, answered = p.out[:before], done, true
			s.refuse(r.ID, s.kv.recoveredError(pb.KV_Range_FullMethodName, v))
		}
	}()
	if err := s.kv.checkAdmission(s.kv.inFlight.Load()+1, p.requires); err != nil {
		s.refuse(r.ID, err)
		return true
	}
	if !s.appendGet(r.ID, key) {
		return false // it may have to wait for room
	}
	s.noteGet(key)
	if len(p.out) >= placeBytes {
		s.flush()
	}
	return true
}

// appendGet appends the answer to a get of key, if that is small.
func (s *fastStream) appendGet(id uint64, key []byte) bool {
	a, p := s.kv.API, &s.place
	v, revision := a.node.Store().Get(key)
	var found mvccpb.KeyValue // not kept, or a stream would hold a value that is deleted
	var kv *mvccpb.KeyValue
	if v != nil {
		kv = &found
		v.Fill(kv)
		if kvBytes([]*mvccpb.KeyValue{kv}) > smallReply {
			return false
		}
	}
	head := fastwire.Head{Cluster: a.node.ClusterID(), Member: a.node.ID(), Revision: uint64(revision), Term: a.node.Term(), Leader: a.node.Leader()}
	out, at := fastwire.BeginAnswer(p.out, id)
	p.out = fastwire.EndAnswer(fastwire.AppendGot(out, &head, kv), at)
	p.done++
	return true
}

// noteGet counts a get that was answered. One reading of the clock ends it and begins the next.
func (s *fastStream) noteGet(key []byte) {
	a, p := s.kv.API, &s.place
	now := time.Now()
	if p.at.IsZero() {
		p.at = now
	}
	took := now.Sub(p.at)
	p.at = now
	if p.calls != nil {
		p.calls.Note(took)
	}
	if took <= min(a.cfg.WarnRequest, a.cfg.WarnApply) {
		a.times.took[requests.Range][1].Note(took)
		return
	}
	a.recordRequest(s.items, pb.KV_Range_FullMethodName, &pb.RangeRequest{Key: key}, s.kv.get(key), nil, took)
}

// refuse answers a get that fails.
func (s *fastStream) refuse(id uint64, err error) {
	a, p := s.kv.API, &s.place
	if p.calls != nil {
		p.calls.End(p.calls.Begin(), err)
	}
	a.times.took[requests.Range][0].Note(0)
	s.answer(id, nil, err)
	p.free = false // it takes room as well
}

// flush queues what was answered in place.
func (s *fastStream) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushLocked()
	s.mu.ready.Signal()
	if p := &s.place; p.buf != nil {
		*p.buf = p.out
		placeBuffers.Put(p.buf)
		p.buf, p.out = nil, nil
	}
}

func (s *fastStream) flushLocked() {
	p := &s.place
	if p.calls != nil {
		p.calls.Done(p.done)
	}
	if len(p.out) > 0 && !s.mu.ended { // else nobody may send it
		last, charged := s.messageLocked(len(p.out))
		*last = append(*last, p.out...)
		s.chargeLocked(cap(*last) - charged)
	}
	p.out, p.done = p.out[:0], 0
	p.free = !s.mu.ended && len(s.mu.under) == 0 && s.fitsLocked(0)
}
