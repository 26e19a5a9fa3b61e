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

// greeting is what the guardian says first. The ID of the process follows it, 16 bytes.
const greeting = "llkv guardian 2\n"

// Ward is a process that has a guardian, as the process itself sees it. Its methods are safe for
// concurrent use.
type Ward struct {
	conn    net.Conn            // immutable
	process transport.ProcessID // immutable
	wake    chan struct{}       // holds a token while there may be a will to write
	// written is what the guardian has of will.
	mu struct {
		sync.Mutex
		will, written []byte
	}
}

// newWard reads what the guardian has said before it has started this process.
func newWard(conn net.Conn) (*Ward, error) {
	said := make([]byte, len(greeting)+len(transport.ProcessID{}))
	// It is there already. Another parent, which has given its child a socket of its own, says nothing.
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	if _, err := io.ReadFull(conn, said); err != nil || string(said[:len(greeting)]) != greeting {
		return nil, fmt.Errorf("guardian: the parent says %q, %w", said, err)
	}
	w := &Ward{conn: conn, process: transport.ProcessID(said[len(greeting):]), wake: make(chan struct{}, 1)}
	go w.write()
	return w, nil
}

// ProcessID is the ID that the guardian has given this process. The guardian keeps the secret that it is the hash of.
func (w *Ward) ProcessID() transport.ProcessID { return w.process }

// Entrust says whom the guardian is to tell, and as whom. The newest will counts. It does not block.
func (w *Ward) Entrust(will transport.Will) {
	text, err := json.Marshal(will)
	if err != nil {
		return // it holds numbers and text alone
	}
	w.mu.Lock()
	w.mu.will = text
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// write ends with the process. A guardian that does not read holds up nothing else.
func (w *Ward) write() {
	for range w.wake {
		w.mu.Lock()
		will, news := w.mu.will, !bytes.Equal(w.mu.will, w.mu.written)
		w.mu.Unlock()
		if !news {
			continue
		}
		if _, err := w.conn.Write(will); err != nil {
			return // the guardian is dead, and this process with it
		}
		w.mu.Lock()
		w.mu.written = will
		w.mu.Unlock()
	}
}
