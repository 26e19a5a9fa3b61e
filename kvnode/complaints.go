package kvnode

import (
	"sync/atomic"

	"golang.org/x/time/rate"
)

// complaints are about entries, and peers' proposals, that nobody should have written.
type complaints struct {
	count atomic.Uint64
	said  rate.Sometimes
}

// malformed counts such a one. The state is sound, the same on all members, so there is no
// alarm that stops clients.
func (p *parts) malformed(err error, args ...any) {
	p.complaints.count.Add(1)
	p.complaints.said.Do(func() {
		p.log.Error("an entry that does not decode has no effect: is a peer faulty, or not one?", append(args, "error", err)...)
	})
}
