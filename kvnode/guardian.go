package kvnode

import "github.com/leaderlease/go/kvnode/transport"

// Guardian waits for the end of this process, and says so to its peers then (rule V8): the
// parent of the process, say. See package guardian.
type Guardian interface {
	// Process is the number by which the peers know this process, never 0, and of no other
	// process of this member.
	Process() uint64
	// Entrust says whom to tell. It is called whenever that has changed, and must not block.
	Entrust(will transport.Will)
}

// process is 0 where nobody waits.
func (c *Config) process() uint64 {
	if c.Guardian == nil {
		return 0
	}
	return c.Guardian.Process()
}

// entrust tells the guardian who the peers are.
func (r *routes) entrust() {
	if r.cfg.Guardian != nil {
		r.cfg.Guardian.Entrust(r.links.Will())
	}
}
