package etcdapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// fastRig is a stream of service Fast. The test is its client.
type fastRig struct {
	grpc.ServerStream // panics
	*fakeNode

	t       *testing.T
	api     *API
	ctx     context.Context
	cancel  context.CancelCauseFunc
	in, out chan fastwire.Raw
	taken   int   // number of messages
	ended   error // valid once over is closed
	over    chan struct{}
	answers []fastwire.Answer
	ending  []uint64 // the last request IDs that the member has reported when stopping
}

// onStream runs test on a stream in a synctest bubble. The test decides when to read messages.
func onStream(t *testing.T, test func(*fastRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &fastRig{t: t, fakeNode: newFakeNode(t), in: make(chan fastwire.Raw), out: make(chan fastwire.Raw), over: make(chan struct{})}
		r.ctx, r.cancel = context.WithCancelCause(t.Context())
		r.api = New(r.fakeNode, Config{})
		go func() {
			defer close(r.over)
			r.ended = serveFast(&kvServer{API: r.api}, r)
		}()
		member, leader := fastwire.MemberState(<-r.out)
		if member != testMember || leader != testMember {
			t.Errorf("the stream begins with member %d, leader %d", member, leader)
		}
		test(r)
		r.cancel(context.Canceled)
		<-r.over
	})
}

// Context implements grpc.ServerStream.
func (r *fastRig) Context() context.Context { return r.ctx }

// RecvMsg implements grpc.ServerStream.
func (r *fastRig) RecvMsg(m any) error {
	into, _ := m.(*fastwire.Raw)
	select {
	case message, ok := <-r.in:
		if !ok {
			return io.EOF
		}
		*into = message
		r.taken++
		return nil
	case <-r.ctx.Done():
		return status.FromContextError(r.ctx.Err()).Err()
	}
}

// SendMsg implements grpc.ServerStream.
func (r *fastRig) SendMsg(m any) error {
	message, _ := m.(*outMessage)
	select {
	case r.out <- bytes.Clone(message.data):
		message.Put(nil) // it is written
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// requests encodes n requests. Their IDs count up from first.
func (r *fastRig) requests(first, n int, method string, m proto.Message) (message fastwire.Raw) {
	r.t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range n {
		message = fastwire.AppendRequest(message, fastwire.Request{ID: uint64(first + i), Method: []byte(method), Message: data})
	}
	return message
}

// fill sends messages of gets of k, batch at a time, until the stream is not read any more. It
// returns how many gets it has sent. The last message may be partly handled.
func (r *fastRig) fill(batch int) (sent int) {
	r.t.Helper()
	for {
		synctest.Wait()
		select {
		case r.in <- r.requests(sent, batch, "Range", getK):
			sent += batch
		default:
			return sent
		}
	}
}

// aloneRequests is about how many small requests a single stream may have in progress.
const aloneRequests = maxFastBytes / 3 / (requestCost + 80)

// next returns the next answer, and reads the next message if necessary.
func (r *fastRig) next() fastwire.Answer {
	r.t.Helper()
	for len(r.answers) == 0 {
		select {
		case message := <-r.out:
			r.read(message)
		case <-r.over:
			r.t.Fatalf("the stream has ended with %v", r.ended)
		}
	}
	a := r.answers[0]
	r.answers = r.answers[1:]
	return a
}

// read records the answers and the state in a message.
func (r *fastRig) read(message fastwire.Raw) {
	r.t.Helper()
	state, err := fastwire.Answers(message, func(a fastwire.Answer) { r.answers = append(r.answers, a) })
	if err != nil {
		r.t.Fatal(err)
	}
	if state.Stopping {
		r.ending = append(r.ending, state.Last)
	}
}

// want fails unless the next answer has this ID, code and text.
func (r *fastRig) want(id uint64, code codes.Code, text string) {
	r.t.Helper()
	if a := r.next(); a.ID != id || codes.Code(a.Code) != code || !strings.Contains(string(a.Text), text) {
		r.t.Errorf("answer to %d: %v %q, want to %d: %v %q", a.ID, codes.Code(a.Code), a.Text, id, code, text)
	}
}

// wantEnd fails unless the stream ends with this code and text.
func (r *fastRig) wantEnd(code codes.Code, text string) {
	r.t.Helper()
	<-r.over
	if st := status.Convert(r.ended); st.Code() != code || !strings.Contains(st.Message(), text) {
		r.t.Errorf("the stream ends with %v, want %v %q", r.ended, code, text)
	}
}

var getK = &pb.RangeRequest{Key: []byte("k")}

// hang makes reads wait until their deadline.
func hang(ctx context.Context, _ kvnode.ReadMode) error {
	<-ctx.Done()
	return ctx.Err()
}

// The tests of calls also hold for requests on a stream. Tests of reads that wait run without the
// lease only.
func TestStreamRequestsBehaveLikeCalls(t *testing.T) {
	whole := 0
	for _, c := range []struct {
		name  string
		test  func(*testing.T)
		waits bool
	}{
		{name: "words", test: TestInvalidRequestsGetEtcdErrors},
		{name: "huge messages", test: TestGRPCRejectsMessagesAboveItsLimit},
		{name: "reads that are not admitted", test: TestRejectedReadsMayBeRetried},
		{name: "a response of another kind", test: TestResponseOfAnotherKindIsAnInternalError},
		{name: "no leader", test: TestRequestsThatRequireALeaderAreRefusedWithoutOne},
		{name: "panics", test: TestRequestThatPanicsDoesNotEndTheProcess, waits: true},
		{name: "too many", test: TestRequestsInFlightAreBounded, waits: true},
		{name: "replies that wait", test: TestWaitingRepliesAreNotInFlight},
		{name: "what is admitted", test: TestPermittedReadsHaveNoTimeout},
		{name: "a client", test: TestEtcdClientPutsGetsDeletesAndCompacts},
		{name: "gets and ranges", test: TestGetOfOneKeyAgreesWithRange},
		{name: "transactions that read", test: TestTransactionsThatOnlyReadAreReads},
		{name: "local transactions", test: TestOnlySerializableTransactionsAreLocal},
		{name: "RangeStream", test: TestRangeStreamMergesIntoRange},
		{name: "read modes", test: TestMetadataChoosesHowToRead},
		{name: "trailers", test: TestTrailersOnDemand},
		{name: "an unknown mode", test: TestUnknownReadModeIsNamed},
		{name: "fetched afterwards", test: TestValueIsFetchedAfterAdmission},
		{name: "replayed", test: TestNothingIsAnsweredBeforeTheLogIsApplied, waits: true},
		{name: "large replies", test: TestRepliesStayWithinTheirBound},
		{name: "counted", test: TestRequestsAreCounted},
		{name: "TTL leases", test: TestTheTTLLeaseServiceThroughAClient},
		{name: "what was before", test: TestPrevKVOfWhatIsCompacted},
		{name: "the quota", test: TestQuotaRefusesGrowthAndRaisesTheAlarm},
	} {
		for _, leased := range []bool{false, true} {
			if c.waits && leased {
				continue
			}
			t.Run(fmt.Sprintf("%s, leased %v", c.name, leased), func(t *testing.T) {
				streamed.on, streamed.leased = true, leased
				defer func() { streamed.on = false }()
				streamed.calls.Store(0)
				c.test(t)
				if streamed.calls.Load() == 0 {
					whole++
				}
			})
		}
	}
	// If the machine pauses for a second, requests become calls, so one test is enough.
	if whole == 0 {
		t.Error("in each test there were calls: the stream is not used")
	}
}

// FuzzAStreamSurvivesItsClient: whatever bytes a client sends, twice, the stream answers the
// valid requests and continues, or ends with InvalidArgument. Afterwards nothing is in progress
// or charged.
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
				t.Errorf("after %x %d requests are in progress, with %d bytes", message, under, bytes)
			}
		})
	})
}

// If a stream requires a leader, its requests do. As with calls, a waiting request keeps waiting
// when the leader is lost, and a new one is rejected.
func TestStreamRequiresLeader(t *testing.T) {
	onStream(t, func(r *fastRig) {
		r2 := &fastRig{t: t, fakeNode: r.fakeNode, ctx: r.ctx, in: make(chan fastwire.Raw), out: make(chan fastwire.Raw), over: make(chan struct{})}
		stream := &stoppable{fastRig: r2, ctx: metadata.NewIncomingContext(r.ctx, metadata.Pairs("hasleader", "true"))}
		go func() {
			defer close(r2.over)
			r2.ended = r.api.interceptStream(&kvServer{API: r.api}, stream, &grpc.StreamServerInfo{FullMethod: fastwire.Method}, serveFast)
		}()
		<-r2.out
		leave := make(chan struct{})
		r.onRead = func(ctx context.Context, _ kvnode.ReadMode) error {
			select {
			case <-leave:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r2.in <- r2.requests(1, 1, "Range", getK)
		synctest.Wait()
		r.setLeader(0)
		time.Sleep(noLeaderTimeouts*r.api.cfg.ElectionTimeout + 1)
		synctest.Wait()
		r2.in <- r2.requests(2, 1, "Range", getK)
		r2.want(2, codes.Unavailable, status.Convert(rpctypes.ErrGRPCNoLeader).Message())
		r.setLeader(testMember)
		close(leave)
		r2.want(1, codes.OK, "")
		r.cancel(context.Canceled)
		<-r2.over
	})
}
