package server

import "github.com/leaderlease/go/kvnode/internal/autocompact"

// The values of Config.AutoCompactionMode.
const (
	CompactPeriodic = autocompact.Periodic
	CompactRevision = autocompact.Revision
)

// compaction returns the policy that is asked for.
func (c *Config) compaction() (autocompact.Policy, error) {
	return autocompact.Parse(c.AutoCompactionMode, c.AutoCompactionRetention)
}

// compact compacts by itself until the server ends.
func (s *Server) compact() {
	policy, err := s.cfg.compaction()
	if err != nil || !policy.Enabled() {
		return // Validate has refused the error
	}
	autocompact.Run(s.ending, autocompact.Config{Policy: policy, Member: s.node, Revisions: s.node.Store(), Logger: s.cfg.named()})
}
