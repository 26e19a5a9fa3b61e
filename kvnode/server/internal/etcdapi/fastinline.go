package etcdapi

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/metadata"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
	"github.com/leaderlease/go/kvnode/internal/requests"
)

// inlineState is the state of gets that the receiving goroutine answers itself. Only that goroutine uses it.
type inlineState struct {
	enabled     bool         // the stream's metadata selects no read mode
	needsLeader bool         // the stream's metadata requires a leader
	calls       *methodCalls // nil if calls are not counted

	leased      bool      // the lease permits the reads of the current message
	skipReserve bool      // reserve need not be called: there is space, and no request is pending
	start       time.Time // of the next get; zero if the clock was not read yet
	out         []byte    // answers that are not queued yet
	buf         *[]byte   // the buffer of out; nil if there is none
	answered    uint64    // number of gets in out
}

// inlineBytes is the approximate size of answers that are queued together. With more, the first
// answers are sent later. With fewer, receiver and sender contend for the lock more often.
const inlineBytes = 16 << 10

// inlineBuffers pools the buffers of answers that are not queued yet, so that an idle stream has
// none.
var inlineBuffers = sync.Pool{New: func() any { return new([]byte) }}

func (p *inlineState) init(ctx context.Context, a *API) {
	md, _ := metadata.FromIncomingContext(ctx)
	p.enabled, p.needsLeader = len(md.Get(fastwire.MetadataReadMode)) == 0, requiresLeader(ctx)
	if a.cfg.Metrics != nil {
		p.calls = a.cfg.Metrics.unaryMethod(pb.KV_Range_FullMethodName)
	}
}

// answerInline answers a get of one key if that cannot block: the lease permits it, and the
// answer is small. Gets with metadata or options are rare and take the slow path.
//
// It repeats what the interceptors do, at a lower cost: the same things are counted and limited.
// A get ends before the next one begins, so it does not count as in progress.
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
	if !s.appendGet(r.ID, key) { // a large answer may have to wait
		return false
	}
	s.recordGet(key)
	if len(p.out) >= inlineBytes {
		s.flush()
	}
	return true
}

// appendGet appends the answer to a get of key. It returns false if the answer is large.
func (s *fastStream) appendGet(id uint64, key []byte) bool {
	a, p := s.kv.API, &s.inline
	v, revision := a.node.Store().Get(key)
	var found mvccpb.KeyValue // no field of the stream, which would then hold a deleted value
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

// recordGet counts an answered get. One clock reading ends it and begins the next.
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
	if took <= min(a.cfg.WarnRequest, a.cfg.WarnRead) {
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
	p.skipReserve = false // the answer takes space
}

// flush queues the inline answers.
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
	if len(p.out) > 0 && !s.mu.ended { // an ended stream answers only pending requests
		last, charged := s.currentMessageLocked(len(p.out))
		*last = append(*last, p.out...)
		s.chargeLocked(cap(*last) - charged)
	}
	p.out, p.answered = p.out[:0], 0
	p.skipReserve = !s.mu.ended && len(s.mu.pending) == 0 && s.fitsLocked(0)
}
