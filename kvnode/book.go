package kvnode

import (
	"github.com/leaderlease/go/kvnode/internal/admission"
	"github.com/leaderlease/go/kvnode/internal/store"
)

// book is what this member knows about the members of its cluster, itself included. Package admission decides by it
// which peer may connect.
type book struct {
	self       uint64
	first      []store.Member // as they were when the data directory was made
	configured []Member       // Config.Cluster
	store      *store.Store
}

func (b *book) members() *admission.Members {
	return &admission.Members{Registry: b.store.Members(), First: b.first, Configured: b.configured}
}
