package redis

import (
	"context"
	"path"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// scanPage is the number of keys that SCAN reads in one request. A page counts when it has arrived.
const scanPage = 500

// scan is SCAN 0 [MATCH pattern] [COUNT n] [TYPE type]. One reply has all keys of one revision, so there is no
// cursor to go on with. A pattern's fixed prefix bounds the range that is read.
func scan(c *conn, args []string) any {
	if args[1] != "0" {
		return failure("ERR invalid cursor: the first reply to a SCAN has all keys")
	}
	pattern, none := "*", false
	for i := 2; i < len(args); i += 2 {
		switch name := strings.ToUpper(args[i]); {
		case i+1 == len(args):
			return errSyntax
		case name == "MATCH":
			pattern = args[i+1]
		case name == "TYPE":
			none = !strings.EqualFold(args[i+1], "string")
		case name != "COUNT": // Redis gives more or fewer keys than that, too
			return errSyntax
		}
	}
	if len(pattern) > c.s.limits.pattern {
		return exceeds("bytes of a pattern", len(pattern), c.s.limits.pattern)
	}
	if _, err := match(pattern, ""); err != nil {
		return errSyntax
	}
	if none {
		return []any{"0", []any{}}
	}
	keys, err := c.scan(pattern)
	if err != nil {
		return readFailure(err)
	}
	return []any{"0", keys}
}

// scan returns the keys that match a pattern.
func (c *conn) scan(pattern string) (keys []any, err error) {
	ctx, cancel := context.WithTimeout(c.s.ctx, c.s.cfg.Timeout)
	defer cancel()
	from := pattern
	if i := strings.IndexAny(pattern, `*?[\`); i >= 0 {
		from = pattern[:i]
	}
	end := clientv3.GetPrefixRangeEnd(from)
	if from == "" {
		from, end = "\x00", "\x00" // all keys
	}
	rev := int64(0)
	keys = []any{}
	for {
		got, err := c.s.cfg.KV.Get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(rev), clientv3.WithKeysOnly(), clientv3.WithLimit(scanPage))
		if err != nil {
			return nil, err
		}
		for _, kv := range got.Kvs {
			if err := ctx.Err(); err != nil { // a pattern may take long with long keys
				return nil, err
			}
			k := string(kv.GetKey())
			from = k + "\x00"
			if is, _ := match(pattern, k); !is { // the pattern is known to be good
				continue
			}
			if err := c.mem.take(values, keyOverhead+len(k)); err != nil {
				return nil, err
			}
			keys = append(keys, k)
		}
		if !got.More {
			return keys, nil
		}
		if rev == 0 {
			rev = got.Header.GetRevision()
		}
	}
}

// match reports whether a key matches a glob of Redis, in which a star matches slashes as well.
func match(pattern, key string) (bool, error) {
	return path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(key, "/", "\x00"))
}
