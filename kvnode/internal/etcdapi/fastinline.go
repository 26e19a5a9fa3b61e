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

// inlineHandler answers gets where they are received. It is for one goroutine.
type inlineHandler struct {
	enabled      bool                // the stream has no wish of its own how it is read
	needsLeader bool                // a leader, of which the stream's metadata tell
	calls    *callmetrics.Method // nil if calls are not counted

	leased bool      // the lease permits reads to all that have arrived
	hasSpace   bool      // there is room, and nothing else is under way
	start     time.Time // when the next item begins; zero if that has not been looked up
	out    []byte    // answers that are not queued yet
	buf    *[]byte   // that out is from; nil if there are none
	answered   uint64    // how many
}

// inlineBytes is about how many bytes of answers are queued at once. More: the first of them are
// sent later. Fewer: who receives and who sends meet more often.
const inlineBytes = 16 << 10

// inlineBuffers are what answers in place are put into, until they are queued: a stream that has
// nothing to answer has none.
var inlineBuffers = sync.Pool{New: func() any { return new([]byte) }}

func (p *inlineHandler) init(ctx context.Context, a *API) {
	md, _ := metadata.FromIncomingContext(ctx)
	p.enabled, p.needsLeader = len(md.Get(fastwire.MetadataReadMode)) == 0, requiresLeader(ctx)
	if a.cfg.Metrics != nil {
		p.calls = a.cfg.Metrics.Unary(pb.KV_Range_FullMethodName)
	}
}

// answerInline answers a get of one key, if that cannot wait for anything: the lease permits
// it, and its answer is small. Gets with metadata or options are rare, and go the long way.
//
// What the interceptors do is done here once more, for less: the same is counted and bounded. It
// is over before the next one begins, so it is not counted as under way.
func (s *fastStream) answerInline(r *fastwire.Request) (answered bool) {
	p := &s.inline
	if !p.leased || len(r.Metadata) > 0 || string(r.Method) != "Range" {
		return false
	}
	key, ok := fastwire.DecodeGet(r.Message)
	if !ok {
		return false
	}
	if p.buf == nil {
		p.buf, _ = inlineBuffers.Get().(*[]byte)
		p.out = (*p.buf)[:0]
	}
	before, done := len(p.out), p.answered
	defer func() {
		if v := recover(); v != nil {
			p.out, p.answered, answered = p.out[:before], done, true
			s.refuseInline(r.ID, s.kv.recoveredError(pb.KV_Range_FullMethodName, v))
		}
	}()
	if err := s.kv.checkAdmission(s.kv.inFlight.Load()+1, p.needsLeader); err != nil {
		s.refuseInline(r.ID, err)
		return true
	}
	if !s.appendGet(r.ID, key) {
		return false // it may have to wait for room
	}
	s.recordGet(key)
	if len(p.out) >= inlineBytes {
		s.flush()
	}
	return true
}

// appendGet appends the answer to a get of key, if that is small.
func (s *fastStream) appendGet(id uint64, key []byte) bool {
	a, p := s.kv.API, &s.inline
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
	head := fastwire.ResponseHead{Cluster: a.node.ClusterID(), Member: a.node.ID(), Revision: uint64(revision), Term: a.node.Term(), Leader: a.node.Leader()}
	out, at := fastwire.BeginAnswer(p.out, id)
	p.out = fastwire.EndAnswer(fastwire.AppendGetResponse(out, &head, kv), at)
	p.answered++
	return true
}

// recordGet counts a get that was answered. One reading of the clock ends it and begins the next.
func (s *fastStream) recordGet(key []byte) {
	a, p := s.kv.API, &s.inline
	now := time.Now()
	if p.start.IsZero() {
		p.start = now
	}
	took := now.Sub(p.start)
	p.start = now
	if p.calls != nil {
		p.calls.Note(took)
	}
	if took <= min(a.cfg.WarnRequest, a.cfg.WarnApply) {
		a.stats.took[requests.Range][1].Note(took)
		return
	}
	a.recordRequest(s.requestCtx, pb.KV_Range_FullMethodName, &pb.RangeRequest{Key: key}, s.kv.get(key), nil, took)
}

// refuseInline answers a get that fails.
func (s *fastStream) refuseInline(id uint64, err error) {
	a, p := s.kv.API, &s.inline
	if p.calls != nil {
		p.calls.End(p.calls.Begin(), err)
	}
	a.stats.took[requests.Range][0].Note(0)
	s.answer(id, nil, err)
	p.hasSpace = false // it takes room as well
}

// flush queues what was answered in place.
func (s *fastStream) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushLocked()
	s.mu.ready.Signal()
	if p := &s.inline; p.buf != nil {
		*p.buf = p.out
		inlineBuffers.Put(p.buf)
		p.buf, p.out = nil, nil
	}
}

func (s *fastStream) flushLocked() {
	p := &s.inline
	if p.calls != nil {
		p.calls.Done(p.answered)
	}
	if len(p.out) > 0 && !s.mu.ended { // else nobody may send it
		last, charged := s.currentMessageLocked(len(p.out))
		*last = append(*last, p.out...)
		s.chargeLocked(cap(*last) - charged)
	}
	p.out, p.answered = p.out[:0], 0
	p.hasSpace = !s.mu.ended && len(s.mu.pending) == 0 && s.fitsLocked(0)
}
