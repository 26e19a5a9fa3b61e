package redis

import (
	"fmt"
	"strings"
	"sync/atomic"
)

// limits bound what clients can make the gateway hold or compute.
type limits struct {
	line    int // bytes of an inline command, or of the length of an array or a string; the size of the read buffer
	args    int // arguments of a command, with its name
	bulk    int // bytes of an argument
	pattern int // bytes of a pattern of SCAN, which is compared with every key
	conn    int // bytes that a connection holds
	all     int // bytes that all connections hold
}

func newLimits(cfg Config) limits {
	return limits{
		line: 16 << 10, args: 1024, bulk: cfg.MaxBulk, pattern: 1024,
		conn: cfg.MaxConnMemory, all: cfg.MaxMemory,
	}
}

// maxKey is the most bytes of a key, so that a page of SCAN is limited.
const maxKey = 16 << 10

// keysOf returns the keys of a command.
func keysOf(args []string) ([]string, error) {
	keys, err := commands[strings.ToUpper(args[0])].keys(args)
	for _, k := range keys {
		if len(k) > maxKey {
			return nil, exceeds("bytes of a key", len(k), maxKey)
		}
	}
	return keys, err
}

// exceeds returns an error that names a value above its limit.
func exceeds(what string, value, limit int) failure {
	return failure("ERR " + tooLarge(what, value, limit))
}

func tooLarge(what string, value, limit int) string {
	return fmt.Sprintf("%s: %d%s%d", what, value, limitText, limit)
}

const limitText = ", the limit is "

// ownMemory is what a connection may hold when others hold all that is shared.
const ownMemory = 64 << 10

// The memory that these take in addition to their bytes.
const (
	argOverhead = 32  // an argument of a command
	keyOverhead = 256 // a key in a transaction, in WATCH or in a reply of SCAN
)

// purpose is what memory is held for.
type purpose int

const (
	parsing purpose = iota // the command that is arriving
	batched                // commands that wait to run
	kept                   // MULTI and WATCH
	values                 // what the cluster has returned for the command that runs
	purposes
)

// memory counts the bytes that a connection holds. Its read and write buffers are not counted, as the number of
// connections is limited.
type memory struct {
	limits *limits
	all    *atomic.Int64 // the bytes that all connections share
	used   int
	by     [purposes]int
}

// take counts n bytes, or returns a failure.
func (m *memory) take(p purpose, n int) error {
	if m.used+n > m.limits.conn {
		return exceeds("bytes of a connection", m.used+n, m.limits.conn)
	}
	more := shared(m.used+n) - shared(m.used)
	if all := m.all.Add(more); more > 0 && int(all) > m.limits.all {
		m.all.Add(-more)
		return exceeds("bytes of all connections, try again later", int(all), m.limits.all)
	}
	m.used += n
	m.by[p] += n
	return nil
}

// shared returns how many of a connection's bytes count against those of all connections.
func shared(used int) int64 { return int64(max(0, used-ownMemory)) }

// move adds the bytes of one purpose to those of another.
func (m *memory) move(from, to purpose) {
	m.by[to] += m.by[from]
	m.by[from] = 0
}

// free returns the bytes of a purpose.
func (m *memory) free(p purpose) {
	m.all.Add(shared(m.used-m.by[p]) - shared(m.used))
	m.used -= m.by[p]
	m.by[p] = 0
}

// close returns all bytes.
func (m *memory) close() {
	for p := range purposes {
		m.free(p)
	}
}
