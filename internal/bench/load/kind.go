package load

// Kind is what an operation does.
type Kind uint8

// The kinds of operations.
const (
	Read Kind = iota
	Write
	kinds
)

// String returns read or write.
func (k Kind) String() string { return [...]string{"read", "write"}[k] }
