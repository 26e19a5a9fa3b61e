package supervisor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/leaderlease/go/kvnode/internal/transport"
)

// greeting is the first thing that the supervisor sends. The process ID follows, 16 bytes.
const greeting = "llkv supervisor\n"

// Client is a child's connection to its supervisor. Its methods are safe for concurrent use.
type Client struct {
	conn    net.Conn            // immutable
	process transport.ProcessID // immutable
	wake    chan struct{}       // holds a token while there may be a list to write

	mu struct {
		sync.Mutex
		// peers is the newest list as JSON, and written the last one that was sent to the supervisor.
		peers, written []byte
	}
}

// newClient reads the greeting, which the supervisor wrote before it started this process.
func newClient(conn net.Conn) (*Client, error) {
	b := make([]byte, len(greeting)+len(transport.ProcessID{}))
	// If the socket is that of another program, there may be no greeting.
	_ = conn.SetReadDeadline(time.Now().Add(notifyTime))
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	if _, err := io.ReadFull(conn, b); err != nil {
		return nil, fmt.Errorf("supervisor: read the greeting: %w", err)
	}
	if got := string(b[:len(greeting)]); got != greeting {
		return nil, fmt.Errorf("supervisor: the parent sent %q, want %q", got, greeting)
	}
	c := &Client{conn: conn, process: transport.ProcessID(b[len(greeting):]), wake: make(chan struct{}, 1)}
	go c.writePeers()
	return c, nil
}

// ProcessID returns the ID of this process. The supervisor keeps the secret of which it is the hash.
func (c *Client) ProcessID() transport.ProcessID { return c.process }

// SetPeers replaces the list of peers that the supervisor notifies. It does not block.
func (c *Client) SetPeers(peers transport.PeersToNotify) {
	text, err := json.Marshal(peers)
	if err != nil {
		return // cannot happen: numbers and texts only
	}
	c.mu.Lock()
	c.mu.peers = text
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// writePeers sends each new list to the supervisor. It runs until the process ends.
func (c *Client) writePeers() {
	for range c.wake {
		c.mu.Lock()
		peers, isNew := c.mu.peers, !bytes.Equal(c.mu.peers, c.mu.written)
		c.mu.Unlock()
		if !isNew {
			continue
		}
		if _, err := c.conn.Write(peers); err != nil {
			return // the supervisor has exited, so this process ends, too (dieWithSupervisor)
		}
		c.mu.Lock()
		c.mu.written = peers
		c.mu.Unlock()
	}
}
