package redis

import (
	"maps"
	"strings"
	"time"
)

// command is a command of Redis. One of do and local is set.
type command struct {
	// arity is the number of arguments, including the name. A negative arity is the minimum.
	arity int
	// keys returns the command's keys.
	keys func(args []string) ([]string, error)
	do   func(t *tx, args []string) any
	// needs returns what the command needs to know of its keys, by default the values.
	needs func(args []string) need
	// local serves a command of the connection or the gateway.
	local   func(c *conn, args []string) any
	inMulti bool
}

// need is what a command needs to know of a key.
type need int

const (
	needsValue   need = iota // and its lease
	needsKey                 // whether it exists
	needsNothing             // it writes the key whatever it holds
)

// knows returns c with what it needs to know of its keys.
func (c command) knows(n need) command {
	c.needs = func([]string) need { return n }
	return c
}

// commands are set by init, because keysOf and do refer to them.
var commands map[string]command

func init() {
	commands = make(map[string]command)
	maps.Copy(commands, keyCommands())
	maps.Copy(commands, connCommands())
}

func keyCommands() map[string]command {
	return map[string]command{
		"GET":    one(2, func(t *tx, args []string) any { return t.keys[args[1]].bulk() }),
		"STRLEN": one(2, func(t *tx, args []string) any { return int64(len(t.keys[args[1]].value)) }),
		"TYPE":   one(2, typeOf).knows(needsKey),
		"MGET":   {arity: -2, keys: allKeys, do: mget},
		"EXISTS": command{arity: -2, keys: allKeys, do: exists}.knows(needsKey),
		"DEL":    {arity: -2, keys: allKeys, do: del},
		"UNLINK": {arity: -2, keys: allKeys, do: del},
		"SET":    {arity: -3, keys: firstKey, do: set, needs: setNeeds},
		"SETNX":  one(3, setnx).knows(needsKey),
		"SETEX":  one(4, func(t *tx, args []string) any { return set(t, []string{"", args[1], args[3], "EX", args[2]}) }).knows(needsNothing),
		"PSETEX": one(4, func(t *tx, args []string) any { return set(t, []string{"", args[1], args[3], "PX", args[2]}) }).knows(needsNothing),
		"GETSET": one(3, func(t *tx, args []string) any { return set(t, []string{"", args[1], args[2], "GET"}) }),
		"GETDEL": one(2, getdel),
		"MSET":   command{arity: -3, keys: pairKeys, do: mset}.knows(needsNothing),
		"APPEND": one(3, appendTo),
		"INCR":   one(2, func(t *tx, args []string) any { return t.keys[args[1]].add("1", 1) }),
		"DECR":   one(2, func(t *tx, args []string) any { return t.keys[args[1]].add("1", -1) }),
		"INCRBY": one(3, func(t *tx, args []string) any { return t.keys[args[1]].add(args[2], 1) }),
		"DECRBY": one(3, func(t *tx, args []string) any { return t.keys[args[1]].add(args[2], -1) }),

		"EXPIRE":    one(3, expire(time.Second, false)),
		"PEXPIRE":   one(3, expire(time.Millisecond, false)),
		"EXPIREAT":  one(3, expire(time.Second, true)),
		"PEXPIREAT": one(3, expire(time.Millisecond, true)),
		"TTL":       one(2, ttl(time.Second)),
		"PTTL":      one(2, ttl(time.Millisecond)),
		"PERSIST":   one(2, persist),

		"EVAL":    {arity: -3, keys: scriptKeys, do: eval},
		"EVALSHA": {arity: -3, keys: scriptKeys, do: evalSHA},
		"KV.LOCK": one(5, kvLock),
		"KV.REV":  one(3, kvRev),
	}
}

// connCommands are the commands of the connection and of the gateway. Inside MULTI only PING and ECHO are queued.
func connCommands() map[string]command {
	return map[string]command{
		"MULTI":   {arity: 1, inMulti: true, local: multi},
		"DISCARD": {arity: 1, inMulti: true, local: discard},
		"EXEC":    {arity: 1, inMulti: true, local: exec},
		"WATCH":   {arity: -2, keys: allKeys, local: watch},
		"UNWATCH": {arity: 1, local: unwatch},
		"SCRIPT":  {arity: -2, local: scriptCommand},

		// Clients and redis-benchmark send most of the following when they connect.
		"PING":    {arity: -1, keys: noKeys, do: ping},
		"ECHO":    {arity: 2, keys: noKeys, do: func(_ *tx, args []string) any { return args[1] }},
		"HELLO":   {arity: -1, local: hello},
		"AUTH":    {arity: -2, local: func(*conn, []string) any { return errAuth }},
		"SELECT":  {arity: 2, local: selectDB},
		"CLIENT":  {arity: -2, local: clientCommand},
		"TIME":    {arity: 1, local: now},
		"INFO":    {arity: -1, local: info},
		"COMMAND": {arity: -1, local: func(*conn, []string) any { return []any{} }}, // redis-cli does without
		"CONFIG":  {arity: -2, local: configCommand},
		"QUIT":    {arity: -1, inMulti: true, local: quit},
		"RESET":   {arity: 1, inMulti: true, local: reset},
		"DBSIZE":  {arity: 1, local: dbsize},
		"SCAN":    {arity: -2, local: scan},
	}
}

// one returns a command with one key.
func one(arity int, do func(t *tx, args []string) any) command {
	return command{arity: arity, keys: firstKey, do: do}
}

func noKeys([]string) ([]string, error) { return nil, nil }

func firstKey(args []string) ([]string, error) { return args[1:2], nil }

func allKeys(args []string) ([]string, error) { return args[1:], nil }

func pairKeys(args []string) (keys []string, err error) {
	if len(args)%2 == 0 {
		return nil, failf("ERR wrong number of arguments for '%s' command", strings.ToLower(args[0]))
	}
	for i := 1; i < len(args); i += 2 {
		keys = append(keys, args[i])
	}
	return keys, nil
}
