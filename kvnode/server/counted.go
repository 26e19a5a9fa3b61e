package server

import (
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/leaderlease/go/kvnode/internal/arrivals"
)

// counted is an entrance that counts what those who have come in send, so that no
// connection costs more than it may.
type counted struct{ *entrance }

// ServerHandshake implements credentials.TransportCredentials.
func (c counted) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.entrance.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	host := arrivals.Host(conn.RemoteAddr().String())
	return c.gate.Conn(conn, func() bool { return c.isMember(host) }), info, nil
}
