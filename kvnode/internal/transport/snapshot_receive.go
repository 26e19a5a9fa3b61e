package transport

import (
	"bufio"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// snapshot takes one snapshot and tells the sender what became of it.
func (in *inbound) snapshot() error {
	err := in.take()
	answer, verdict := byte(answerOK), any(nil)
	if err != nil {
		answer, verdict = answerRefused, &Refusal{Reason: ReasonOther, Text: shorten(err.Error())}
	}
	if e := in.conn.SetWriteDeadline(time.Now().Add(in.t.limits.handshake)); e == nil {
		if e = writePacket(in.conn, answer, verdict); e == nil {
			linger(in.conn)
		}
	}
	return err
}

// take reads the snapshot and hands it to the node.
func (in *inbound) take() error {
	r := bufio.NewReaderSize(&patient{conn: in.conn, limit: in.t.limits.stall}, readBuffer)
	m, n, err := (&frames{r: r}).next()
	if err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	if m == nil {
		m = &raftpb.Message{}
	}
	if err := in.check(m); err != nil {
		return err
	}
	state, size, err := newChunkReader(r)
	if err != nil {
		return err
	}
	count := &in.counts.in[snapshots]
	count.receivedBytes.Add(uint64(n))
	err = in.working(func() error {
		return in.t.cfg.Handler.ReceiveSnapshot(m, size, state)
	})
	count.receivedBytes.Add(uint64(size - state.left))
	if err != nil {
		return fmt.Errorf("receive snapshot: %w", err)
	}
	if !state.finished() {
		return errNotRead
	}
	count.received.Add(1)
	return nil
}

// working runs f and tells the sender every while that it still does: making a
// state durable may take long.
func (in *inbound) working(f func() error) error {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(in.t.limits.working)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
			// A sender that reads nothing is noticed where the state is read.
			if in.conn.SetWriteDeadline(time.Now().Add(in.t.limits.stall)) != nil ||
				writePacket(in.conn, answerWorking, nil) != nil {
				return
			}
		}
	}()
	defer func() {
		close(stop)
		<-stopped
	}()
	return f()
}

// shorten keeps a text within a packet, whatever its bytes become in JSON, and
// within a line of the log.
func shorten(s string) string {
	const limit = 1 << 10
	if len(s) > limit {
		return s[:limit] + " …"
	}
	return s
}

var errNotRead = errors.New("the state was not read to its end")
