package rawnode

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// link is one node's end of a connection to a peer. Messages travel as their
// length in four bytes and their protobuf encoding.
type link struct {
	conn  net.Conn
	inbox chan<- *raftpb.Message // of the node at this end

	// The raft loop of the node at this end writes.
	out *bufio.Writer
	buf []byte
}

// connectPair connects a and b and returns both ends.
func connectPair(a, b *node) ([]*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	dialled, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	accepted, err := listener.Accept()
	if err = errors.Join(err, listener.Close()); err != nil {
		return nil, errors.Join(err, dialled.Close())
	}
	a.peers[b.id], b.peers[a.id] = newLink(dialled, a), newLink(accepted, b)
	return []*link{a.peers[b.id], b.peers[a.id]}, nil
}

func newLink(conn net.Conn, n *node) *link {
	return &link{conn: conn, inbox: n.inbox, out: bufio.NewWriterSize(conn, 1<<16)}
}

// write buffers m. Errors stick to the writer and show when it is flushed.
func (l *link) write(m *raftpb.Message) error {
	var err error
	l.buf = append(l.buf[:0], 0, 0, 0, 0)
	if l.buf, err = (proto.MarshalOptions{}).MarshalAppend(l.buf, m); err != nil {
		return fmt.Errorf("marshal %v: %w", m.GetType(), err)
	}
	binary.BigEndian.PutUint32(l.buf, uint32(len(l.buf)-4))
	_, err = l.out.Write(l.buf)
	return err
}

// receive passes messages on until the connection ends. A message that finds
// the inbox full is lost, so that two nodes never wait for each other.
func (l *link) receive() {
	in := bufio.NewReaderSize(l.conn, 1<<16)
	var head [4]byte
	var buf []byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint32(head[:]))
		if cap(buf) < n {
			buf = make([]byte, n)
		}
		buf = buf[:n]
		if _, err := io.ReadFull(in, buf); err != nil {
			return
		}
		m := &raftpb.Message{}
		if err := proto.Unmarshal(buf, m); err != nil {
			return
		}
		select {
		case l.inbox <- m:
		default:
		}
	}
}
