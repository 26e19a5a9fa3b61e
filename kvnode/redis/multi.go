package redis

import (
	"context"
	"errors"
	"maps"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// maxQueued and maxQueuedBytes limit a MULTI.
const (
	maxQueued      = 1024
	maxQueuedBytes = maxCommand
)

func multiCommands() map[string]command {
	return map[string]command{
		"MULTI": {arity: 1, inMulti: true, local: func(c *conn, _ []string) any {
			if c.multi {
				return failure("ERR MULTI calls can not be nested")
			}
			c.multi = true
			return ok
		}},
		"DISCARD": {arity: 1, inMulti: true, local: func(c *conn, _ []string) any {
			if !c.multi {
				return failure("ERR DISCARD without MULTI")
			}
			c.endMulti()
			return ok
		}},
		"EXEC":    {arity: 1, inMulti: true, local: exec},
		"WATCH":   {arity: -2, local: watch},
		"UNWATCH": {arity: 1, local: func(c *conn, _ []string) any { c.watched = nil; return ok }},
	}
}

// endMulti leaves the MULTI and forgets the watched keys.
func (c *conn) endMulti() {
	c.multi, c.broken, c.queued, c.bytes, c.watched = false, false, nil, 0, nil
}

// queue adds a command to the MULTI.
func (c *conn) queue(args []string) any {
	for _, a := range args {
		c.bytes += len(a)
	}
	if len(c.queued) == maxQueued || c.bytes > maxQueuedBytes {
		c.broken = true
		return failf("ERR a MULTI takes at most %d commands and %d bytes", maxQueued, maxQueuedBytes)
	}
	if _, err := commands[strings.ToUpper(args[0])].keys(args); err != nil {
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
	queued, watched, broken := c.queued, c.watched, c.broken
	c.endMulti()
	if broken {
		return failure("EXECABORT Transaction discarded because of previous errors.")
	}
	ctx, cancel := context.WithTimeout(c.s.ctx, c.s.cfg.Timeout)
	defer cancel()
	replies, err := c.s.transact(ctx, queued, watched)
	switch {
	case errors.Is(err, errAborted):
		return nilArray{}
	case err != nil:
		return err
	}
	return replies
}

// watch remembers the revisions of keys.
func watch(c *conn, args []string) any {
	ctx, cancel := context.WithTimeout(c.s.ctx, c.s.cfg.Timeout)
	defer cancel()
	watched := maps.Clone(c.watched)
	if watched == nil {
		watched = make(map[string]int64)
	}
	for rest := args[1:]; len(rest) > 0; rest = rest[min(chunk, len(rest)):] {
		part := rest[:min(chunk, len(rest))]
		kvs, _, err := c.s.read(ctx, part, 0, clientv3.WithKeysOnly())
		if err != nil {
			return readFailure(err)
		}
		for i, k := range part {
			if _, is := watched[k]; !is { // the first WATCH counts
				watched[k] = kvs[i].GetModRevision()
			}
		}
	}
	if len(watched) > maxArgs {
		return failf("ERR at most %d keys can be watched", maxArgs)
	}
	c.watched = watched
	return ok
}
