package transport

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"slices"
)

// kindDeathNotice is the kind of a packet that reports the death of a process. Its connection ends after the answer.
// Versions that do not know the kind refuse it. Kind 201, the notice of former versions, is refused.
const kindDeathNotice = 202

// deathNotice is the payload of the packet.
type deathNotice struct {
	Hello         // of the dead process's member
	Secret Secret `json:"secret"`
}

// PeersToNotify lists the peers that a supervisor notifies when the member's
// process dies.
type PeersToNotify struct {
	Hello Hello       `json:"hello"`
	Peers []PeerAddrs `json:"peers"`
}

// PeerAddrs is a peer and its addresses, host:port.
type PeerAddrs struct {
	ID    uint64   `json:"id"`
	Addrs []string `json:"addrs"`
}

// PeersToNotify returns this member's hello and its present peers.
func (t *Transport) PeersToNotify() PeersToNotify {
	list, peers := PeersToNotify{Hello: t.cfg.Hello}, *t.peers.Load()
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		list.Peers = append(list.Peers, PeerAddrs{id, *peers[id].addrs.Load()})
	}
	return list
}

// SendDeathNotice sends a death notice to addr, the address of the member with ID to. The
// caller guarantees that the process with this secret will never execute another
// instruction. h is the hello of the process's member. The error is a *RefusedError if the
// receiver rejects the notice or does not know its kind. The call ends with ctx. dial is
// Config.Dial, nil for TCP.
func SendDeathNotice(ctx context.Context, dial func(ctx context.Context, addr string) (net.Conn, error), addr string, to uint64, h Hello, secret Secret) error {
	h.To, h.Hold = to, 0
	_, err := request(ctx, dial, addr, to, kindDeathNotice, deathNotice{h, secret})
	return err
}

// handleDeathNotice reports the death to the handler, or refuses the notice.
func (in *inbound) handleDeathNotice(p packet) {
	process, err := in.t.checkDeathNotice(in, p)
	if err != nil {
		in.refuse(refusalOf(err))
		return
	}
	in.t.cfg.Handler.Died(in.from, process)
	in.sendLast(answerOK, nil)
}

// checkDeathNotice returns the process ID of a notice, or the reason to refuse it. The sender must authenticate as
// the member itself does. That alone proves no death: see Handler.Died.
func (t *Transport) checkDeathNotice(in *inbound, p packet) (ProcessID, error) {
	if r := t.checkHello(in, p); r != nil {
		return ProcessID{}, r
	}
	var n deathNotice
	if err := json.Unmarshal(p.payload, &n); err != nil {
		return ProcessID{}, refusal(ReasonOther, "decode death notice: %v", err)
	}
	if n.Secret == (Secret{}) {
		return ProcessID{}, refusal(ReasonOther, "the death notice has no secret")
	}
	if r := t.authenticate(in); r != nil {
		return ProcessID{}, r
	}
	return n.Secret.ProcessID(), t.cfg.Handler.Admit(in.hello)
}
