package testcluster

// Program is a server that takes etcd's flags.
type Program struct {
	Name string
	Path string   // of the binary
	Args []string // in front of the flags
	// Guarded says that it runs the member as its child: see Member.Ward.
	Guarded bool
}
