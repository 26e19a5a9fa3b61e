package fastwire

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// noRoom begins the message of NoRoom, by which clients know it.
const noRoom = "kvnode: no room on the streams for a request"

// NoRoom is the answer to a request that the server has not begun, since it takes cost bytes
// where used of at most limit bytes are in use. A client makes a call instead.
func NoRoom(cost int, used, limit int64) error {
	return status.Errorf(codes.ResourceExhausted, "%s of %d bytes: %d of %d are in use: make a call instead", noRoom, cost, used, limit)
}

// IsNoRoom reports whether err is the answer NoRoom.
func IsNoRoom(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.ResourceExhausted && strings.HasPrefix(s.Message(), noRoom)
}
