package redis

import (
	"crypto/sha1" //nolint:gosec // EVALSHA's names are SHA-1
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxScripts limits the remembered texts.
const maxScripts = 1000

// script does what a known script does. It gets at least one key and two arguments, which may be empty.
type script struct {
	do         func(t *tx, keys, args []string) any
	failedStep string // the step of the lock pattern if it fails
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

// known are the scripts by their normalised text. The first five use their first key only.
var known = map[string]script{
	normalise(compareAndDelete):  {do: func(t *tx, keys, args []string) any { return release(t, keys[:1], args) }},
	normalise(redsyncDelete):     {do: releaseOrMissing},
	normalise(compareAndExpire):  {func(t *tx, keys, args []string) any { return renew(t, keys[:1], args, time.Second) }, renewalFailed},
	normalise(compareAndRenew):   {func(t *tx, keys, args []string) any { return renew(t, keys[:1], args, time.Millisecond) }, renewalFailed},
	normalise(redsyncRenewOrSet): {renewOrAcquire, renewalFailed},
	normalise(redlockAcquire):    {acquire, acquireFailed},
	normalise(redlockExtend):     {func(t *tx, keys, args []string) any { return renew(t, keys, args, time.Millisecond) }, renewalFailed},
	normalise(redlockRelease):    {do: release},
}

// normalise drops comments, spaces, semicolons, case and the kind of quotes. A text with a comment of several
// lines becomes empty, which is no known script.
func normalise(text string) string {
	if strings.Contains(text, "--[") {
		return ""
	}
	text = strings.ReplaceAll(text, "\r", "\n") // either ends a comment
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		line, _, _ = strings.Cut(line, "--")
		for _, word := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t;", r) }) {
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

const errScript = failure("ERR this gateway runs only the scripts of lock libraries that it knows " +
	"(compare-and-delete, compare-and-expire, redsync, redlock): the script is none of them")

// load remembers a script, and returns its SHA-1.
func (s *scripts) load(text string) (script, string, error) {
	do, is := known[normalise(text)]
	if !is {
		return do, "", errScript
	}
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	sha := hex.EncodeToString(sum[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byRaw == nil || len(s.byRaw) >= maxScripts { // clients load again after NOSCRIPT
		s.byRaw = make(map[string]script)
	}
	s.byRaw[sha] = do
	return do, sha, nil
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
		return nil, errInteger
	case n < 0:
		return nil, failf("ERR Number of keys can't be negative")
	case n > len(args)-3:
		return nil, failf("ERR Number of keys can't be greater than number of args")
	}
	return args[3 : 3+n], nil
}

func eval(t *tx, args []string) any {
	do, _, err := t.s.scripts.load(args[1])
	if err != nil {
		return err
	}
	return do.run(t, args)
}

func evalSHA(t *tx, args []string) any {
	do, is := t.s.scripts.bySHA(args[1])
	if !is {
		return failure("NOSCRIPT No matching script. Please use EVAL.")
	}
	return do.run(t, args)
}

func (do script) run(t *tx, args []string) any {
	keys, err := scriptKeys(args)
	if err != nil {
		return err
	}
	rest := args[3+len(keys):]
	if len(keys) == 0 || len(rest) == 0 {
		return failure("ERR the script needs a key and an argument")
	}
	return do.do(t, keys, append(rest, ""))
}

// token is the fencing token of a key: its creation revision, which a renewal does not change.
func (e *entry) token() any {
	if e.create == 0 { // this transaction creates it
		e.hasToken = true
		return token{}
	}
	return e.create
}

// kvLock is KV.LOCK key owner PX ms. For the present owner it renews the lock.
func kvLock(t *tx, args []string) any {
	sec, err := t.s.positive(args[4], time.Millisecond, false)
	if !strings.EqualFold(args[3], "PX") || err != nil {
		return failure("ERR usage: KV.LOCK key owner PX milliseconds")
	}
	e := t.keys[args[1]]
	switch {
	case e.exists && e.value != args[2]:
		t.recordStep(contended, args[1], args[2])
		return nil
	case e.exists:
		t.recordStep(renewed, args[1], args[2])
		e.put(args[2], sec)
		return e.token()
	}
	if err := e.putNew(args[2], sec); err != nil {
		return err
	}
	t.recordStep(acquired, args[1], args[2])
	return e.token()
}

// kvRev is KV.REV key owner. The token is for the holder only.
func kvRev(t *tx, args []string) any {
	if e := t.keys[args[1]]; e.held(args[2]) {
		return e.token()
	}
	return nil
}

func scriptCommand(c *conn, args []string) any {
	if !strings.EqualFold(args[1], "LOAD") || len(args) != 3 {
		return failure("ERR only SCRIPT LOAD script is supported")
	}
	_, sha, err := c.s.scripts.load(args[2])
	if err != nil {
		return err
	}
	return sha
}

// acquire sets all keys to the owner if none exists.
func acquire(t *tx, keys, args []string) any {
	sec, err := t.s.positive(args[1], time.Millisecond, false)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if t.keys[k].exists {
			t.recordStep(contended, k, args[0])
			return int64(0)
		}
	}
	for _, k := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		if err := t.keys[k].putNew(args[0], sec); err != nil {
			t.err = err // other keys may be locked
			return nil
		}
	}
	t.recordStep(acquired, keys[0], args[0])
	return int64(len(keys))
}

// renew sets the expiry of all keys if all have this owner.
func renew(t *tx, keys, args []string, unit time.Duration) any {
	sec, err := t.s.positive(args[1], unit, false)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if !t.keys[k].held(args[0]) {
			t.recordStep(lost, k, args[0])
			return int64(0)
		}
	}
	for _, k := range keys {
		t.keys[k].put(args[0], sec)
	}
	t.recordStep(renewed, keys[0], args[0])
	return int64(len(keys))
}

func renewOrAcquire(t *tx, keys, args []string) any {
	if t.keys[keys[0]].exists {
		return renew(t, keys[:1], args, time.Millisecond)
	}
	return acquire(t, keys[:1], args)
}

// release removes the keys that have this owner, and returns their number.
func release(t *tx, keys, args []string) any {
	n := int64(0)
	for _, k := range keys {
		if !t.keys[k].held(args[0]) {
			t.recordStep(refused, k, args[0])
			continue
		}
		t.keys[k].remove()
		n++
	}
	return n
}

func releaseOrMissing(t *tx, keys, args []string) any {
	missing := !t.keys[keys[0]].exists
	r := release(t, keys[:1], args)
	if missing {
		return int64(-1)
	}
	return r
}

func (e *entry) held(owner string) bool { return e.exists && e.value == owner }
