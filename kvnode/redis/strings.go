package redis

import (
	"maps"
	"math"
	"strconv"
	"strings"
	"time"
)

// command is a command of Redis. One of do and local is set.
type command struct {
	// arity is the number of arguments with the name; negative: at least so many.
	arity int
	// keys returns the keys, which are read before do.
	keys func(args []string) ([]string, error)
	do   func(t *tx, args []string) any
	// local serves a command of the connection or the gateway.
	local   func(c *conn, args []string) any
	inMulti bool
}

// commands is filled by init, as transact uses it.
var commands map[string]command

func init() {
	commands = make(map[string]command)
	for _, table := range []map[string]command{stringCommands(), counterCommands(), expiryCommands(), multiCommands(), scriptCommands(), infoCommands()} {
		maps.Copy(commands, table)
	}
}

func firstKey(args []string) ([]string, error) { return args[1:2], nil }
func allKeys(args []string) ([]string, error)  { return args[1:], nil }
func pairKeys(args []string) (keys []string, err error) {
	if len(args)%2 == 0 {
		return nil, failf("ERR wrong number of arguments for '%s' command", strings.ToLower(args[0]))
	}
	for i := 1; i < len(args); i += 2 {
		keys = append(keys, args[i])
	}
	return keys, nil
}

// one returns a command with one key.
func one(arity int, do func(t *tx, args []string) any) command {
	return command{arity: arity, keys: firstKey, do: do}
}

func stringCommands() map[string]command {
	return map[string]command{
		"GET":    one(2, func(t *tx, args []string) any { return t.keys[args[1]].bulk() }),
		"STRLEN": one(2, func(t *tx, args []string) any { return int64(len(t.keys[args[1]].value)) }),
		"TYPE": one(2, func(t *tx, args []string) any {
			if !t.keys[args[1]].exists {
				return simple("none")
			}
			return simple("string")
		}),
		"MGET":   {arity: -2, keys: allKeys, do: mget},
		"EXISTS": {arity: -2, keys: allKeys, do: func(t *tx, args []string) any { return t.count(args[1:], false) }},
		"DEL":    {arity: -2, keys: allKeys, do: func(t *tx, args []string) any { return t.count(args[1:], true) }},
		"UNLINK": {arity: -2, keys: allKeys, do: func(t *tx, args []string) any { return t.count(args[1:], true) }},
		"SET":    one(-3, set),
		"SETNX":  one(3, setnx),
		"SETEX":  one(4, func(t *tx, args []string) any { return setex(t, args, time.Second) }),
		"PSETEX": one(4, func(t *tx, args []string) any { return setex(t, args, time.Millisecond) }),
		"MSET":   {arity: -3, keys: pairKeys, do: mset},
		"GETSET": one(3, func(t *tx, args []string) any {
			e := t.keys[args[1]]
			defer e.put(args[2], 0)
			return e.bulk()
		}),
		"GETDEL": one(2, func(t *tx, args []string) any {
			e := t.keys[args[1]]
			old := e.bulk()
			if e.exists {
				e.remove()
			}
			return old
		}),
	}
}

func counterCommands() map[string]command {
	return map[string]command{
		"INCR":   one(2, func(t *tx, args []string) any { return t.keys[args[1]].add("1", false) }),
		"DECR":   one(2, func(t *tx, args []string) any { return t.keys[args[1]].add("1", true) }),
		"INCRBY": one(3, func(t *tx, args []string) any { return t.keys[args[1]].add(args[2], false) }),
		"DECRBY": one(3, func(t *tx, args []string) any { return t.keys[args[1]].add(args[2], true) }),
		"APPEND": one(3, appendTo),
	}
}

// bulk is the reply for the value.
func (e *entry) bulk() any {
	if !e.exists {
		return nil
	}
	return e.value
}

// add adds an integer to the value.
func (e *entry) add(text string, negative bool) any {
	by, err := strconv.ParseInt(text, 10, 64)
	if err != nil || negative && by == math.MinInt64 {
		return errInteger
	}
	if negative {
		by = -by
	}
	n := int64(0)
	if e.exists {
		n, err = strconv.ParseInt(e.value, 10, 64)
		if err != nil || strconv.FormatInt(n, 10) != e.value {
			return errInteger
		}
	}
	if by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
		return failure("ERR increment or decrement would overflow")
	}
	e.put(strconv.FormatInt(n+by, 10), keepTTL)
	return n + by
}

func appendTo(t *tx, args []string) any {
	e := t.keys[args[1]]
	if len(e.value)+len(args[2]) > t.s.cfg.MaxBulk {
		return failf("ERR string exceeds maximum allowed size (%d bytes)", t.s.cfg.MaxBulk)
	}
	e.put(e.value+args[2], keepTTL)
	return int64(len(e.value))
}

func mget(t *tx, args []string) any {
	values := make([]any, len(args)-1)
	size := 0
	for i, k := range args[1:] {
		values[i] = t.keys[k].bulk()
		if size += len(t.keys[k].value); size > t.s.cfg.MaxReply { // the same key many times
			return failf("ERR the values exceed %d bytes", t.s.cfg.MaxReply)
		}
	}
	return values
}

func mset(t *tx, args []string) any {
	for i := 1; i < len(args); i += 2 {
		t.keys[args[i]].put(args[i+1], 0)
	}
	return ok
}

// count counts the keys that exist, and removes them if it is asked to.
func (t *tx) count(keys []string, remove bool) any {
	n := int64(0)
	for _, k := range keys {
		if e := t.keys[k]; e.exists {
			n++
			if remove {
				e.remove()
			}
		}
	}
	return n
}

func setnx(t *tx, args []string) any {
	e := t.keys[args[1]]
	if e.exists {
		return int64(0)
	}
	e.put(args[2], 0)
	return int64(1)
}

func setex(t *tx, args []string, unit time.Duration) any {
	ttl, err := t.s.ttl(args[2], unit, false)
	if err != nil {
		return err
	}
	t.keys[args[1]].put(args[3], ttl)
	return ok
}

// setOptions are the options of SET.
type setOptions struct {
	nx, xx, get bool
	// ttl is in seconds, 0 for none, keepTTL or past.
	ttl int64
}

// units are the options of SET that take a time.
var units = map[string]struct {
	unit time.Duration
	at   bool
}{"EX": {time.Second, false}, "PX": {time.Millisecond, false}, "EXAT": {time.Second, true}, "PXAT": {time.Millisecond, true}}

func parseSet(s *Server, args []string) (o setOptions, err error) {
	timed := false
	for i := 3; i < len(args); i++ {
		name := strings.ToUpper(args[i])
		u, isTime := units[name]
		switch {
		case name == "NX" && !o.xx:
			o.nx = true
		case name == "XX" && !o.nx:
			o.xx = true
		case name == "GET":
			o.get = true
		case name == "KEEPTTL" && !timed:
			timed, o.ttl = true, keepTTL
		case isTime && !timed && i+1 < len(args):
			i++
			if o.ttl, err = s.ttl(args[i], u.unit, u.at); err != nil {
				return o, err
			}
			timed = true
		default:
			return o, errSyntax
		}
	}
	return o, nil
}

func set(t *tx, args []string) any {
	o, err := parseSet(t.s, args)
	if err != nil {
		return err
	}
	e := t.keys[args[1]]
	old := e.bulk()
	won := !(o.nx && e.exists || o.xx && !e.exists)
	switch {
	case won && o.ttl == past:
		e.remove()
	case won:
		e.put(args[2], o.ttl)
	}
	if o.nx && o.ttl > 0 {
		t.lock(map[bool]string{true: acquired, false: contended}[won], args[1], args[2])
	}
	switch {
	case o.get:
		return old
	case won:
		return ok
	}
	return nil
}
