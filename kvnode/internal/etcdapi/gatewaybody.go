package etcdapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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
