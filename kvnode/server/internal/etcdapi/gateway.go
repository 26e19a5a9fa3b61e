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

// GatewayService registers a service with a gateway. It is generated code.
type GatewayService = func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error

// Gateway serves the API as JSON under /v3/ through conn, a connection to a server of this API.
// The caller closes conn. As in etcd, fields have their protobuf names, 64-bit integers are
// strings, bytes are base64, and zero values are left out. The gateway passes the header
// x-lease-read on and returns the trailers of a read as headers. more are the generated functions
// of further services.
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
	// Base64 takes four bytes for three. The node rejects a request that is too large
	// after decoding.
	return a.gatewayRequests.track(boundBodies(mux, int64(a.maxMessageBytes())/3*4)), nil
}

// gatewayHeader passes x-lease-read on, in addition to the gateway's default headers. It drops
// headers that only members may send to each other.
func gatewayHeader(name string) (string, bool) {
	if name == http.CanonicalHeaderKey(fastwire.MetadataReadMode) {
		return fastwire.MetadataReadMode, true
	}
	key, ok := runtime.DefaultHeaderMatcher(name)
	return key, ok && !strings.HasPrefix(strings.ToLower(key), metadataMembers)
}

// gatewayReplyHeader drops gRPC's content type, which does not describe the JSON.
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

// boundedBody is a request body with a size limit. One goroutine at a time reads it. For a stream
// this is not the goroutine that answers.
type boundedBody struct {
	io.ReadCloser
	size     int64                 // as announced, or -1
	tooLarge atomic.Pointer[error] // not nil after a read beyond the limit
}

// boundBodies limits the bodies of requests to h.
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
		b.tooLarge.Store(&err)
	}
	return n, err
}

// tooLarge returns an error with gRPC's code for messages above its limit.
func tooLarge(size, limit int64) error {
	if size < 0 {
		return status.Errorf(codes.ResourceExhausted, "kvnode: request body is larger than the limit of %d bytes", limit)
	}
	return status.Errorf(codes.ResourceExhausted, "kvnode: request body of %d bytes is larger than the limit of %d bytes", size, limit)
}

// gatewayError replaces the parse error of a truncated body by the size error.
func gatewayError(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	if b, ok := r.Body.(*boundedBody); ok {
		if large := b.tooLarge.Load(); large != nil {
			err = *large
		}
	}
	runtime.DefaultHTTPErrorHandler(ctx, mux, m, w, r, err)
}

const (
	// metadataGatewayRequest is the metadata by which the gateway identifies its HTTP request to
	// the API. Its value is random, so a client cannot forge one.
	metadataGatewayRequest = "x-kvnode-gateway-request"
	// gatewayReplyFactor is the memory that a reply through the gateway takes, as a multiple of
	// its encoded size. The gateway receives it, decodes it, encodes it as JSON with base64
	// values, and copies it each time (measured: 850 MB for 100 MB).
	gatewayReplyFactor = 8
)

// gatewayRequests are the HTTP requests in progress, by the value of metadataGatewayRequest.
// Their reservations are released when they end.
type gatewayRequests struct{ byID sync.Map }

// gatewayRequest is one HTTP request.
type gatewayRequest struct {
	mu          sync.Mutex // guards the other fields
	reservation *reservation
	ended       bool
}

// gatewayRequestKey is the context key for the value of metadataGatewayRequest.
type gatewayRequestKey struct{}

// track serves h, and releases the reservations of a request when h returns.
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

// requestMetadata returns the metadata that identifies an HTTP request to the API.
func (*gatewayRequests) requestMetadata(ctx context.Context, _ *http.Request) metadata.MD {
	id, _ := ctx.Value(gatewayRequestKey{}).(string)
	return metadata.Pairs(metadataGatewayRequest, id)
}

// find returns the HTTP request that an API request belongs to, or nil. The gateway's value comes
// after values that the client may have sent.
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

// reserve reserves memory for a reply of size bytes.
func (d *gatewayRequest) reserve(ctx context.Context, b *replyBudget, size int64) error {
	r, err := b.reserve(ctx, size, gatewayReplyFactor)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended || d.reservation != nil { // a request has one reply
		r.release()
		return nil
	}
	d.reservation = r
	return nil
}

// limitWrite closes the connection of a client that does not read its reply in time.
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
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // for the next request
	}
}
