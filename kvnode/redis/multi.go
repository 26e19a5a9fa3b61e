package redis

import (
	"context"
	"errors"
	"slices"
	"strings"
)

func multi(c *conn, _ []string) any {
	if c.multi {
		return failure("ERR MULTI calls can not be nested")
	}
	c.multi = true
	return ok
}

func discard(c *conn, _ []string) any {
	if !c.multi {
		return failure("ERR DISCARD without MULTI")
	}
	c.endMulti()
	return ok
}

func unwatch(c *conn, _ []string) any {
	c.endMulti() // UNWATCH is not served inside MULTI
	return ok
}

// endMulti leaves the MULTI and forgets the watched keys.
func (c *conn) endMulti() {
	c.multi, c.broken, c.queued, c.watched = false, false, nil, nil
	c.mem.free(kept)
}

// maxQueue limits the bytes of a MULTI and WATCH. The transaction of a larger MULTI would be refused.
const maxQueue = 2 << 20

// queue adds a command to the MULTI.
func (c *conn) queue(args []string) any {
	size := 0
	for _, a := range args {
		size += argOverhead + len(a)
	}
	_, err := keysOf(args)
	if err == nil && c.mem.by[kept]+size > maxQueue {
		err = exceeds("bytes of a MULTI and WATCH", c.mem.by[kept]+size, maxQueue)
	}
	if err == nil {
		err = c.mem.take(kept, size)
	}
	if err != nil {
		c.broken = true
		return err
	}
	c.queued = append(c.queued, args)
	return simple("QUEUED")
}

// exec runs the queued commands as one transaction.
func exec(c *conn, _ []string) any {
	if !c.multi {
		return failure("ERR EXEC without MULTI")
	}
	defer c.endMulti()
	if c.broken {
		return failure("EXECABORT Transaction discarded because of previous errors.")
	}
	replies, err := c.transact(c.queued, c.watched)
	switch {
	case errors.Is(err, errAborted):
		return nilArray{}
	case err != nil:
		return err
	}
	return replies
}

// watch remembers the revisions of keys. After an error, some of them are watched.
func watch(c *conn, args []string) any {
	ctx, cancel := context.WithTimeout(c.s.ctx, c.s.cfg.Timeout)
	defer cancel()
	if c.watched == nil {
		c.watched = make(map[string]int64)
	}
	keys, err := keysOf(args)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(keys, chunk) {
		kvs, _, err := c.s.read(ctx, part, 0, func(string) bool { return true })
		if err != nil {
			return readFailure(err)
		}
		for i, k := range part {
			if _, is := c.watched[k]; is { // the first WATCH counts
				continue
			}
			if err := c.mem.take(kept, keyOverhead+len(k)); err != nil {
				return err
			}
			c.watched[strings.Clone(k)] = kvs[i].GetModRevision()
		}
	}
	return ok
}
