package etcdapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	gw "go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/leaderlease/go/kvnode/internal/fastwire"
)

// GatewayService registers a service with a gateway; it is generated.
type GatewayService = func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error

// Gateway serves the API as JSON under /v3/, through conn, which is a connection
// to a server of this API and the caller's to close. As in etcd fields have
// their protobuf names, 64-bit integers are strings, bytes are base64, and what
// is zero is left out. The header x-lease-read is passed on, and the trailers of
// a read come back as headers. What else the server has is served too, if its
// generated function is among more.
func (a *API) Gateway(ctx context.Context, conn *grpc.ClientConn, more ...GatewayService) (http.Handler, error) {
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.HTTPBodyMarshaler{Marshaler: &runtime.JSONPb{
			MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true},
			UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
		}}),
		runtime.WithIncomingHeaderMatcher(gatewayHeader),
		runtime.WithOutgoingHeaderMatcher(gatewayReplyHeader),
		runtime.WithForwardResponseOption(readHeaders),
		runtime.WithMetadata(a.gatewayRequests.requestMetadata),
		runtime.WithForwardResponseOption(func(ctx context.Context, w http.ResponseWriter, _ proto.Message) error {
			a.gatewayRequests.limitWrite(ctx, w)
			return nil
		}),
		runtime.WithErrorHandler(gatewayError),
	)
	for _, register := range append([]GatewayService{
		gw.RegisterKVHandler, gw.RegisterWatchHandler, gw.RegisterLeaseHandler,
		gw.RegisterClusterHandler, gw.RegisterMaintenanceHandler, gw.RegisterAuthHandler,
	}, more...) {
		if err := register(ctx, mux, conn); err != nil {
			return nil, fmt.Errorf("kvnode: JSON gateway: %w", err)
		}
	}
	// Base64 takes four bytes for three; what is too large after it has been
	// decoded gets the node's own refusal.
	return a.gatewayRequests.track(boundBodies(mux, int64(a.maxMessageBytes())/3*4)), nil
}

// gatewayHeader passes x-lease-read on besides what gateways pass on anyway, but
// nothing that only members say to each other.
func gatewayHeader(name string) (string, bool) {
	if name == http.CanonicalHeaderKey(fastwire.MetadataReadMode) {
		return fastwire.MetadataReadMode, true
	}
	key, ok := runtime.DefaultHeaderMatcher(name)
	return key, ok && !strings.HasPrefix(strings.ToLower(key), metadataMembers)
}

// gatewayReplyHeader keeps to itself how gRPC encodes a reply, which says nothing
// about the JSON that it becomes.
func gatewayReplyHeader(name string) (string, bool) {
	return runtime.MetadataHeaderPrefix + name, name != "content-type"
}

// readHeaders turns the trailers of a read into headers.
func readHeaders(ctx context.Context, w http.ResponseWriter, _ proto.Message) error {
	md, _ := runtime.ServerMetadataFromContext(ctx)
	for _, name := range []string{fastwire.TrailerReadPath, fastwire.TrailerRemaining} {
		if v := md.TrailerMD.Get(name); len(v) > 0 {
			w.Header().Set(name, v[0])
		}
	}
	return nil
}

// boundedBody is the body of a request, cut at a limit. One goroutine at a time
// reads it; that of a stream is not the one that answers.
type boundedBody struct {
	io.ReadCloser
	size  int64                 // as announced, or -1
	limit atomic.Pointer[error] // not nil once there was more than the limit
}

// boundBodies serves no more of a request's body than limit bytes.
func boundBodies(h http.Handler, limit int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bounded := *r
		bounded.Body = &boundedBody{ReadCloser: http.MaxBytesReader(nil, r.Body, limit), size: r.ContentLength}
		h.ServeHTTP(w, &bounded)
	})
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		err := tooLarge(b.size, large.Limit)
		b.limit.Store(&err)
	}
	return n, err
}

// tooLarge says it in the code that gRPC has for messages beyond its limit.
func tooLarge(size, limit int64) error {
	if size < 0 {
		return status.Errorf(codes.ResourceExhausted, "kvnode: request body is larger than the limit of %d bytes", limit)
	}
	return status.Errorf(codes.ResourceExhausted, "kvnode: request body of %d bytes is larger than the limit of %d bytes", size, limit)
}

// gatewayError says of a body that was cut that it was too large, rather than
// that it makes no sense.
func gatewayError(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	if b, ok := r.Body.(*boundedBody); ok {
		if large := b.limit.Load(); large != nil {
			err = *large
		}
	}
	runtime.DefaultHTTPErrorHandler(ctx, mux, m, w, r, err)
}

const (
	// metadataGatewayRequest is how the gateway says which request over HTTP one to the API
	// is for. Its value cannot be guessed, so that no client has one to give.
	metadataGatewayRequest = "x-kvnode-delivery"
	// gatewayReplyFactor is how much memory a reply over the gateway takes, in its encoded
	// size: it is received, decoded, made JSON with its values in base64, and copied
	// by each of them (measured: 850 MB for 100 MB).
	gatewayReplyFactor = 8
)

// gatewayRequests are the requests over HTTP that are under way, by what metadataDelivery
// says. The room of their replies is given back when they end.
type gatewayRequests struct{ byID sync.Map }

// gatewayRequest is one of them.
type gatewayRequest struct {
	mu   sync.Mutex
	reservation *reservation
	ended bool
}

// gatewayRequestKey is the context's key of metadataDelivery's value.
type gatewayRequestKey struct{}

// track serves h, and gives back what its replies take when it has returned.
func (all *gatewayRequests) track(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, d := rand.Text(), new(gatewayRequest)
		all.byID.Store(id, d)
		defer func() {
			all.byID.Delete(id)
			d.end(w)
		}()
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), gatewayRequestKey{}, id)))
	})
}

// requestMetadata tells the API.
func (*gatewayRequests) requestMetadata(ctx context.Context, _ *http.Request) metadata.MD {
	id, _ := ctx.Value(gatewayRequestKey{}).(string)
	return metadata.Pairs(metadataGatewayRequest, id)
}

// find returns the delivery that a request to the API is for, nil if it is none. The
// gateway's word comes after what its client may have sent under that name.
func (all *gatewayRequests) find(ctx context.Context) *gatewayRequest {
	ids := metadata.ValueFromIncomingContext(ctx, metadataGatewayRequest)
	if len(ids) == 0 {
		return nil
	}
	return all.get(ids[len(ids)-1])
}

func (all *gatewayRequests) get(id string) *gatewayRequest {
	found, _ := all.byID.Load(id)
	d, _ := found.(*gatewayRequest)
	return d
}

// reserve finds room for a reply of that size.
func (d *gatewayRequest) reserve(ctx context.Context, b *replyBudget, size int64) error {
	r, err := b.reserve(ctx, size, gatewayReplyFactor)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended || d.reservation != nil { // there is one reply, so that this is for nobody
		r.release()
		return nil
	}
	d.reservation = r
	return nil
}

// limitWrite ends the connection of a client that does not take its reply in time.
func (all *gatewayRequests) limitWrite(ctx context.Context, w http.ResponseWriter) {
	id, _ := ctx.Value(gatewayRequestKey{}).(string)
	d := all.get(id)
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reservation != nil {
		// An error means that there is no connection, as in tests.
		_ = http.NewResponseController(w).SetWriteDeadline(d.reservation.deadline)
	}
}

func (d *gatewayRequest) end(w http.ResponseWriter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	if d.reservation != nil {
		d.reservation.release()
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // the next request has its own
	}
}
