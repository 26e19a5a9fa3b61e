package server

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"strconv"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// A client that reads a large reply in small pieces sends two window updates for each
// of them, as Go's HTTP client and the proxies made of it do. It gets the whole reply.
func TestRepliesReadInSmallPieces(t *testing.T) {
	s := solo(t)
	c := client(t, s)
	const values, each = 20, 1 << 20
	value := string(make([]byte, each))
	for i := range values {
		if _, err := c.Put(t.Context(), "k"+strconv.Itoa(i), value); err != nil {
			t.Fatal(err)
		}
	}
	body, err := proto.Marshal(&pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l")})
	if err != nil {
		t.Fatal(err)
	}
	body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.ClientAddrs()[0]+pb.KV_Range_FullMethodName, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body}, make([]byte, 4<<10))
		_ = resp.Body.Close()
		if err != nil || n < values*each || resp.Trailer.Get("Grpc-Status") != "0" {
			t.Fatalf("a reply of %d bytes, read 4 KiB at a time, ends after %d with %v and status %q", values*each, n, err, resp.Trailer.Get("Grpc-Status"))
		}
	}
}
