package guardian

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/leaderlease/go/kvnode/transport"
)

// greeting is what the guardian says first; the number of the process follows it, 8 bytes.
const greeting = "llkv guardian 1\n"

// Ward is a process that has a guardian, as the process itself sees it. Its methods are safe for
// concurrent use.
type Ward struct {
	conn    net.Conn      // immutable
	process uint64        // immutable
	wake    chan struct{} // holds a token while there may be a will to write
	// written is what the guardian has of will.
	mu struct {
		sync.Mutex
		will, written []byte
	}
}

// newWard reads what the guardian has said before it has started this process.
func newWard(conn net.Conn) (*Ward, error) {
	said := make([]byte, len(greeting)+8)
	// It is there already. Another parent, which has given its child a socket of its own, says nothing.
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	if _, err := io.ReadFull(conn, said); err != nil || string(said[:len(greeting)]) != greeting {
		return nil, fmt.Errorf("guardian: the parent says %q, %w", said, err)
	}
	w := &Ward{conn: conn, process: binary.BigEndian.Uint64(said[len(greeting):]), wake: make(chan struct{}, 1)}
	go w.write()
	return w, nil
}

// Process is the number that the guardian has given this process, never 0.
func (w *Ward) Process() uint64 { return w.process }

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
