package redis

import (
	"crypto/sha1" //nolint:gosec // EVALSHA's names are SHA-1
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxScripts limits the remembered texts.
const maxScripts = 1000

// script does what a known script does.
type script struct {
	keys, args int // at least
	do         func(t *tx, keys, args []string) any
}

const (
	compareAndDelete = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`
	compareAndExpire = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("expire",KEYS[1],ARGV[2]) else return 0 end`
	compareAndRenew  = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("pexpire",KEYS[1],ARGV[2]) else return 0 end`
	redsyncDelete    = `local val = redis.call("GET", KEYS[1]) if val == ARGV[1] then return redis.call("DEL", KEYS[1])
		elseif val == false then return -1 else return 0 end`
	redsyncRenewOrSet = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("PEXPIRE", KEYS[1], ARGV[2])
		elseif redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2], "NX") then return 1 else return 0 end`
	redlockAcquire = `for i, key in ipairs(KEYS) do if redis.call("exists", key) == 1 then return 0 end end
		for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "PX", ARGV[2]) end return #KEYS`
	redlockExtend = `for i, key in ipairs(KEYS) do if redis.call("get", key) ~= ARGV[1] then return 0 end end
		for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "PX", ARGV[2]) end return #KEYS`
	redlockRelease = `local count = 0 for i, key in ipairs(KEYS) do if redis.call("get", key) == ARGV[1] then
		redis.pcall("del", key) count = count + 1 end end return count`
)

// known are the scripts by their normalised text.
var known = map[string]script{
	normalise(compareAndDelete):  {1, 1, releaser(0)},
	normalise(redsyncDelete):     {1, 1, releaser(-1)},
	normalise(compareAndExpire):  {1, 2, renewer(time.Second)},
	normalise(compareAndRenew):   {1, 2, renewer(time.Millisecond)},
	normalise(redsyncRenewOrSet): {1, 2, renewOrSet},
	normalise(redlockAcquire):    {1, 2, acquireAll},
	normalise(redlockExtend):     {1, 2, extendAll},
	normalise(redlockRelease):    {1, 1, releaseAll},
}

// normalise drops comments, spaces, semicolons, case and the kind of quotes. A text with a comment of several
// lines becomes empty, which is no known script.
func normalise(text string) string {
	if strings.Contains(text, "--[") {
		return ""
	}
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		line, _, _ = strings.Cut(line, "--")
		for _, word := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n;", r) }) {
			// Two words stay two words; a space beside a sign says nothing.
			if s := b.String(); s != "" && isWord(s[len(s)-1]) && isWord(word[0]) {
				b.WriteByte(' ')
			}
			b.WriteString(strings.ReplaceAll(strings.ToLower(word), "'", `"`))
		}
	}
	return b.String()
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// scripts are the known scripts by the SHA-1 of a text that a client has sent.
type scripts struct {
	mu    sync.Mutex
	byRaw map[string]script
}

func shaOf(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

const errScript = failure("ERR this gateway runs only the scripts of lock libraries that it knows " +
	"(compare-and-delete, compare-and-expire, redsync, redlock): the script is none of them")

// load remembers a script.
func (s *scripts) load(text string) (script, any) {
	found, is := known[normalise(text)]
	if !is {
		return script{}, errScript
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byRaw == nil || len(s.byRaw) >= maxScripts { // clients load again after NOSCRIPT
		s.byRaw = make(map[string]script)
	}
	s.byRaw[shaOf(text)] = found
	return found, nil
}

func (s *scripts) bySHA(sha string) (script, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, is := s.byRaw[strings.ToLower(sha)]
	return found, is
}

// scriptKeys returns the keys of EVAL script numkeys key... arg...
func scriptKeys(args []string) ([]string, error) {
	n, err := strconv.Atoi(args[2])
	switch {
	case err != nil:
		return nil, failureError{errInteger}
	case n < 0:
		return nil, failuref("ERR Number of keys can't be negative")
	case n > len(args)-3:
		return nil, failuref("ERR Number of keys can't be greater than number of args")
	}
	return args[3 : 3+n], nil
}

func scriptCommands() map[string]command {
	return map[string]command{
		"EVAL": {arity: -3, keys: scriptKeys, do: func(t *tx, args []string) any {
			sc, wrong := t.s.scripts.load(args[1])
			if wrong != nil {
				return wrong
			}
			return sc.run(t, args)
		}},
		"EVALSHA": {arity: -3, keys: scriptKeys, do: func(t *tx, args []string) any {
			sc, is := t.s.scripts.bySHA(args[1])
			if !is {
				return failure("NOSCRIPT No matching script. Please use EVAL.")
			}
			return sc.run(t, args)
		}},
		"SCRIPT":  {arity: -2, local: scriptCommand},
		"KV.LOCK": {arity: 5, keys: firstKey, do: kvLock},
		"KV.REV": {arity: 2, keys: firstKey, do: func(t *tx, args []string) any {
			if e := t.keys[args[1]]; e.exists {
				return e.token()
			}
			return nil
		}},
	}
}

// token is the fencing token of a key: its creation revision, which a renewal does not change.
func (e *entry) token() any {
	if e.create == 0 {
		return token{} // this transaction creates it
	}
	return e.create
}

// kvLock is KV.LOCK key owner PX ms. For the present owner it renews the lock.
func kvLock(t *tx, args []string) any {
	ttl, valid := t.s.seconds(args[4], time.Millisecond, false)
	if !strings.EqualFold(args[3], "PX") || !valid || ttl == past {
		return failure("ERR usage: KV.LOCK key owner PX milliseconds")
	}
	e := t.keys[args[1]]
	if e.exists && e.value != args[2] {
		t.acquire(args[1], args[2], false)
		return nil
	}
	switch {
	case e.exists:
		t.renew(args[1], args[2], true)
	case e.had: // etcd would keep the creation revision, and so the token of the holder before
		return failure("ERR nothing was locked: the same MULTI deletes the key before KV.LOCK")
	default:
		t.acquire(args[1], args[2], true)
	}
	e.put(args[2], ttl)
	return e.token()
}

func scriptCommand(c *conn, args []string) any {
	if !strings.EqualFold(args[1], "LOAD") || len(args) != 3 {
		return failure("ERR only SCRIPT LOAD script is supported")
	}
	if _, wrong := c.s.scripts.load(args[2]); wrong != nil {
		return wrong
	}
	return shaOf(args[2])
}

func (sc script) run(t *tx, args []string) any {
	keys, err := scriptKeys(args)
	if err != nil {
		return failure(err.Error())
	}
	rest := args[3+len(keys):]
	if len(keys) < sc.keys || len(rest) < sc.args {
		return failf("ERR the script needs %d keys and %d arguments", sc.keys, sc.args)
	}
	return sc.do(t, keys, rest)
}

// releaser deletes a key that has the value. missing is the reply for a key that is gone.
func releaser(missing int64) func(t *tx, keys, args []string) any {
	return func(t *tx, keys, args []string) any {
		e := t.keys[keys[0]]
		switch {
		case e.exists && e.value == args[0]:
			e.remove()
			return int64(1)
		case !e.exists:
			t.refuse(keys[0], args[0])
			return missing
		}
		t.refuse(keys[0], args[0])
		return int64(0)
	}
}

func renewer(unit time.Duration) func(t *tx, keys, args []string) any {
	return func(t *tx, keys, args []string) any {
		e := t.keys[keys[0]]
		ttl, valid := t.s.seconds(args[1], unit, false)
		if !valid {
			return errInteger
		}
		held := e.exists && e.value == args[0]
		t.renew(keys[0], args[0], held)
		if !held {
			return int64(0)
		}
		return e.expire(ttl)
	}
}

func renewOrSet(t *tx, keys, args []string) any {
	if e := t.keys[keys[0]]; e.exists {
		return renewer(time.Millisecond)(t, keys, args)
	}
	r := set(t, []string{"SET", keys[0], args[0], "PX", args[1], "NX"})
	if r == any(ok) {
		return int64(1)
	}
	return r
}

// putAll writes a token to all keys.
func (t *tx) putAll(keys []string, value, ms string) any {
	ttl, valid := t.s.seconds(ms, time.Millisecond, false)
	if !valid || ttl == past {
		return failure("ERR invalid expire time in 'set' command")
	}
	for _, k := range keys {
		t.keys[k].put(value, ttl)
	}
	return int64(len(keys))
}

func acquireAll(t *tx, keys, args []string) any {
	for _, k := range keys {
		if t.keys[k].exists {
			t.acquire(k, args[0], false)
			return int64(0)
		}
	}
	r := t.putAll(keys, args[0], args[1])
	if _, is := r.(int64); is {
		t.acquire(keys[0], args[0], true)
	}
	return r
}

func extendAll(t *tx, keys, args []string) any {
	for _, k := range keys {
		if e := t.keys[k]; !e.exists || e.value != args[0] {
			t.renew(k, args[0], false)
			return int64(0)
		}
	}
	t.renew(keys[0], args[0], true)
	return t.putAll(keys, args[0], args[1])
}

func releaseAll(t *tx, keys, args []string) any {
	n := int64(0)
	for _, k := range keys {
		if e := t.keys[k]; e.exists && e.value == args[0] {
			e.remove()
			n++
			continue
		}
		t.refuse(k, args[0])
	}
	return n
}
