package kvnode

import "github.com/leaderlease/go/kvnode/internal/transport"

// Guardian waits for the end of this process, and says so to its peers then (rule V8): the
// parent of the process, say. See package guardian.
type Guardian interface {
	// ProcessID is the ID that peers see in this process's hellos. It is the hash of a secret that the guardian keeps to
	// itself until this process is dead.
	ProcessID() transport.ProcessID
	// Entrust says whom to tell. It is called whenever that has changed, and must not block.
	Entrust(will transport.Will)
}

// processID returns the zero value if there is no guardian.
func (c *Config) processID() transport.ProcessID {
	if c.Guardian == nil {
		return transport.ProcessID{}
	}
	return c.Guardian.ProcessID()
}
