package client

import "github.com/leaderlease/go/kvnode/internal/fastwire"

// Metadata of calls that kvnode has and etcd does not. docs/kvnode.md has their values.
const (
	// MetadataReadMode is the key by which a request chooses how it is read.
	MetadataReadMode = fastwire.MetadataReadMode
	// TrailerReadPath names the path that a read has taken, such as lease.
	TrailerReadPath = fastwire.TrailerReadPath
	// TrailerRemaining is for how many milliseconds the lease would still have served.
	TrailerRemaining = fastwire.TrailerRemaining
)
