package fastwire

// Metadata of calls that kvnode has and etcd does not. Package client exports them.
const (
	MetadataReadMode = "x-lease-read"
	TrailerReadPath  = "x-lease-read-path"
	TrailerRemaining = "x-lease-remaining-ms"
)
