package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// version is the version of Redis that clients are told, as they choose commands by it.
const version = "7.0.0"

const errAuth = failure("ERR AUTH is refused: the gateway has no users and no password, so a password would protect nothing")

func infoCommands() map[string]command {
	return map[string]command{
		"PING": {arity: -1, local: func(_ *conn, args []string) any {
			if len(args) > 1 {
				return args[1]
			}
			return simple("PONG")
		}},
		"ECHO":  {arity: 2, local: func(_ *conn, args []string) any { return args[1] }},
		"HELLO": {arity: -1, local: hello},
		"AUTH":  {arity: -2, local: func(*conn, []string) any { return errAuth }},
		"SELECT": {arity: 2, local: func(_ *conn, args []string) any {
			if args[1] != "0" {
				return failure("ERR DB index is out of range: there is only 0")
			}
			return ok
		}},
		"CLIENT": {arity: -2, local: clientCommand},
		"TIME": {arity: 1, local: func(*conn, []string) any {
			now := time.Now()
			return []any{strconv.FormatInt(now.Unix(), 10), strconv.Itoa(now.Nanosecond() / 1000)}
		}},
		"INFO":    {arity: -1, local: info},
		"COMMAND": {arity: -1, local: commandCommand},
		"CONFIG":  {arity: -2, local: configCommand},
		"QUIT": {arity: -1, inMulti: true, local: func(c *conn, _ []string) any {
			c.quit = true
			return ok
		}},
		"RESET": {arity: 1, inMulti: true, local: func(c *conn, _ []string) any {
			c.endMulti()
			c.resp3, c.name = false, ""
			return simple("RESET")
		}},
		"DBSIZE": {arity: 1, local: dbsize},
		"SCAN":   {arity: -2, local: scan},
	}
}

// hello is HELLO [2|3 [AUTH user password] [SETNAME name]].
func hello(c *conn, args []string) any {
	if len(args) > 1 {
		if args[1] != "2" && args[1] != "3" {
			return failure("NOPROTO unsupported protocol version")
		}
		for i := 2; i < len(args); i++ {
			switch strings.ToUpper(args[i]) {
			case "AUTH":
				return errAuth
			case "SETNAME":
				if i++; i == len(args) {
					return errSyntax
				}
				c.name = args[i]
			default:
				return errSyntax
			}
		}
		c.resp3 = args[1] == "3"
	}
	proto := int64(2)
	if c.resp3 {
		proto = 3
	}
	return pairs{
		"server", "redis", "version", version, "proto", proto, "id", c.id,
		"mode", "standalone", "role", "master", "modules",
		[]any{},
	}
}

func clientCommand(c *conn, args []string) any {
	switch strings.ToUpper(args[1]) {
	case "ID":
		return c.id
	case "GETNAME":
		if c.name == "" {
			return nil
		}
		return c.name
	case "SETNAME":
		if len(args) != 3 {
			return errSyntax
		}
		c.name = args[2]
		return ok
	case "SETINFO":
		return ok
	}
	return failf("ERR unknown subcommand '%.32s'", args[1])
}

func info(c *conn, _ []string) any {
	c.s.mu.Lock()
	conns := len(c.s.open)
	c.s.mu.Unlock()
	return fmt.Sprintf("# Server\r\nredis_version:%s\r\nredis_mode:standalone\r\nserver_name:kvnode\r\nuptime_in_seconds:%d\r\n"+
		"# Clients\r\nconnected_clients:%d\r\nmaxclients:%d\r\n# Persistence\r\nloading:0\r\n"+
		"# Replication\r\nrole:master\r\nconnected_slaves:0\r\n# Cluster\r\ncluster_enabled:0\r\n",
		version, int(time.Since(c.s.start).Seconds()), conns, c.s.cfg.MaxConns)
}

// commandCommand is COMMAND, of which clients need the number at most.
func commandCommand(_ *conn, args []string) any {
	if len(args) > 1 && strings.EqualFold(args[1], "COUNT") {
		return int64(len(commands))
	}
	return []any{}
}

// configCommand is CONFIG GET name..., as redis-benchmark asks for it.
func configCommand(_ *conn, args []string) any {
	if !strings.EqualFold(args[1], "GET") {
		return failure("ERR only CONFIG GET is supported: the command line configures the gateway")
	}
	found := pairs{}
	for _, name := range args[2:] {
		if value, is := map[string]string{"appendonly": "yes", "appendfsync": "always", "save": ""}[strings.ToLower(name)]; is {
			found = append(found, name, value)
		}
	}
	return found
}

func dbsize(c *conn, _ []string) any {
	ctx, cancel := context.WithTimeout(c.s.ctx, c.s.cfg.Timeout)
	defer cancel()
	got, err := c.s.cfg.KV.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
	if err != nil {
		return readFailure(err)
	}
	return got.Count
}

const (
	maxCursors = 1000 // each holds a key
	// maxScan limits COUNT, as a reply holds that many keys.
	maxScan = 1000
)

// cursors are the scans under way: the key at which each goes on. With too many, one is dropped.
type cursors struct {
	mu   sync.Mutex
	next map[uint64]string
}

func (c *cursors) put(key string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = make(map[uint64]string)
	}
	for id := range c.next {
		if len(c.next) < maxCursors {
			break
		}
		delete(c.next, id)
	}
	id := rand.Uint64()>>1 | 1 // #nosec G404 -- a cursor is no secret; some clients read it as int64
	c.next[id] = key
	return id
}

// get keeps the cursor, as a client may repeat a SCAN after a lost reply.
func (c *cursors) get(id uint64) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, is := c.next[id]
	return key, is
}

type scanOptions struct {
	pattern string
	count   int64
	none    bool // TYPE is not string
}

func parseScan(args []string) (o scanOptions, wrong any) {
	o = scanOptions{pattern: "*", count: 10}
	for i := 2; i < len(args); i += 2 {
		if i+1 == len(args) {
			return o, errSyntax
		}
		switch v := args[i+1]; strings.ToUpper(args[i]) {
		case "MATCH":
			o.pattern = v
		case "COUNT":
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil || n < 1 {
				return o, errInteger
			}
			o.count = min(n, maxScan)
		case "TYPE":
			o.none = !strings.EqualFold(v, "string")
		default:
			return o, errSyntax
		}
	}
	return o, nil
}

// scan goes through the keys in order. A pattern's fixed prefix bounds the range that is read.
func scan(c *conn, args []string) any {
	id, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		return failure("ERR invalid cursor")
	}
	o, wrong := parseScan(args)
	if wrong != nil {
		return wrong
	}
	prefix := o.pattern
	if i := strings.IndexAny(prefix, `*?[\`); i >= 0 {
		prefix = prefix[:i]
	}
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	if prefix == "" {
		from, end = "\x00", "\x00"
	}
	if id != 0 {
		next, is := c.s.cursors.get(id)
		if !is {
			return failure("ERR invalid cursor, start the scan again")
		}
		from = max(from, next)
	}
	if o.none || end != "\x00" && from >= end {
		return []any{"0", []any{}}
	}
	ctx, cancel := context.WithTimeout(c.s.ctx, c.s.cfg.Timeout)
	defer cancel()
	got, err := c.s.cfg.KV.Get(ctx, from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(o.count))
	if err != nil {
		return readFailure(err)
	}
	keys := []any{}
	for _, kv := range got.Kvs {
		if k := string(kv.GetKey()); match(o.pattern, k) {
			keys = append(keys, k)
		}
	}
	if !got.More || len(got.Kvs) == 0 {
		return []any{"0", keys}
	}
	next := c.s.cursors.put(string(got.Kvs[len(got.Kvs)-1].GetKey()) + "\x00")
	return []any{strconv.FormatUint(next, 10), keys}
}

// match reports whether s matches a glob of Redis. It goes back to the last star only, so it is quadratic at
// worst.
func match(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			star, mark = p, i
			p++
			continue
		}
		if n := matchOne(pattern[p:], s[i]); n > 0 {
			p += n
			i++
			continue
		}
		if star < 0 {
			return false
		}
		mark++
		p, i = star+1, mark
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// matchOne returns the length of the pattern's first element if it matches a byte, else 0.
func matchOne(pattern string, c byte) int {
	if pattern == "" {
		return 0
	}
	n, found := 1, pattern[0] == c
	switch {
	case pattern[0] == '?':
		found = true
	case pattern[0] == '\\' && len(pattern) > 1:
		n, found = 2, pattern[1] == c
	case pattern[0] == '[':
		n, found = matchSet(pattern, c)
	}
	if !found {
		return 0
	}
	return n
}

// matchSet matches a byte against a set such as [a-c] or [^x].
func matchSet(pattern string, c byte) (n int, found bool) {
	i, not := 1, false
	if i < len(pattern) && pattern[i] == '^' {
		i, not = 2, true
	}
	for ; i < len(pattern) && pattern[i] != ']'; i++ {
		if pattern[i] == '\\' && i+1 < len(pattern) {
			i++
		}
		low, high := pattern[i], pattern[i]
		if i+2 < len(pattern) && pattern[i+1] == '-' && pattern[i+2] != ']' {
			i += 2
			high = pattern[i]
		}
		found = found || min(low, high) <= c && c <= max(low, high)
	}
	return min(i+1, len(pattern)), found != not
}
