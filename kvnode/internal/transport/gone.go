package transport

import (
	"context"
	"errors"
	"io"
	"slices"
)

// gone tells the handler of a stream of messages that the peer has ended, if it was the
// last one. ctx has ended if this end has closed it, or the peer has connected anew.
func (in *inbound) gone(ctx context.Context, err error) {
	if in.kind == snapshots || ctx.Err() != nil || !endedByPeer(err) {
		return
	}
	in.t.leave(in)
	if !in.t.hears(in.from) {
		in.t.cfg.Handler.Gone(in.from)
	}
}

// hears reports whether a peer has a stream on which it sends messages.
func (t *Transport) hears(id uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.inbound[slot{id, control}] != nil || t.mu.inbound[slot{id, bulk}] != nil
}

// endedByPeer reports whether err says that the other end has ended a connection. TLS says
// it of a process that died by an end in the midst of a record. Timeouts do not say so, nor
// do connections that are closed here.
func endedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		slices.ContainsFunc(resets, func(reset error) bool { return errors.Is(err, reset) })
}
