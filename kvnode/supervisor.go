package kvnode

import "github.com/leaderlease/go/kvnode/internal/transport"

// Supervisor notifies the peers when this process has exited (rule V8). It is another process,
// such as the parent. See package supervisor.
type Supervisor interface {
	// ProcessID returns the ID of this process for its hellos. It is the hash of a secret that only
	// the supervisor knows until this process is dead.
	ProcessID() transport.ProcessID
	// SetPeers replaces the list of peers to notify. It must not block.
	SetPeers(peers transport.PeersToNotify)
}

// processID returns the zero value if there is no supervisor.
func (c *Config) processID() transport.ProcessID {
	if c.Supervisor == nil {
		return transport.ProcessID{}
	}
	return c.Supervisor.ProcessID()
}
