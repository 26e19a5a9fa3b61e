package etcdapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	gw "go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	"google.golang.org/grpc"
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
		runtime.WithMetadata(a.deliveries.annotate),
		runtime.WithForwardResponseOption(func(ctx context.Context, w http.ResponseWriter, _ proto.Message) error {
			a.deliveries.hurry(ctx, w)
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
	return a.deliveries.serve(boundBodies(mux, int64(a.maxMessageBytes())/3*4)), nil
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
