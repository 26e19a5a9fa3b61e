package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// stream is a kind of connection. Its number is on the wire, plus one.
type stream uint8

const (
	control stream = iota
	bulk
	snapshots
	numStreams
)

var streamNames = [numStreams]string{"control", "bulk", "snapshot"}

func (s stream) String() string {
	if s < numStreams {
		return streamNames[s]
	}
	return "stream " + strconv.Itoa(int(s))
}

// streamOf returns the stream that carries messages of a type. What may be large
// is not control.
func streamOf(t raftpb.MessageType) stream {
	switch t {
	case raftpb.MsgApp, raftpb.MsgProp:
		return bulk
	case raftpb.MsgSnap:
		return snapshots
	default:
		return control
	}
}

// reservedID reports whether raft gives id a meaning of its own.
func reservedID(id uint64) bool { return id == raft.None || raft.IsLocalMsgTarget(id) }

// ID is how the ID of a member or a cluster looks to people, as etcd's.
func ID(id uint64) string { return strconv.FormatUint(id, 16) }

// noDelay sends small messages at once, also below TLS.
func noDelay(c net.Conn) {
	if u, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = u.NetConn()
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetNoDelay(true) // a connection that fails here fails at the next write
	}
}

// isClosed reports whether err only says that this end has closed.
func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }

// broken explains err, which ended a connection that was doing something.
func broken(doing string, err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: the peer closed the connection", doing)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// jittered returns d less up to a half, so that members do not move in step.
func jittered(d time.Duration, random float64) time.Duration {
	return d - time.Duration(random*float64(d)/2)
}
