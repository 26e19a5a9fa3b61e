package redis

import "time"

func expiryCommands() map[string]command {
	table := make(map[string]command)
	for name, c := range map[string]struct {
		unit time.Duration
		at   bool
	}{
		"EXPIRE": {time.Second, false}, "PEXPIRE": {time.Millisecond, false},
		"EXPIREAT": {time.Second, true}, "PEXPIREAT": {time.Millisecond, true},
	} {
		table[name] = command{arity: 3, keys: firstKey, do: func(t *tx, args []string) any {
			return expire(t, args, c.unit, c.at)
		}}
	}
	for name, unit := range map[string]time.Duration{"TTL": time.Second, "PTTL": time.Millisecond} {
		table[name] = command{arity: 2, keys: firstKey, do: func(t *tx, args []string) any {
			left, err := t.remaining(t.keys[args[1]])
			if err != nil {
				return readFailure(err)
			}
			if left > 0 {
				left *= int64(time.Second / unit)
			}
			return left
		}}
	}
	table["PERSIST"] = command{arity: 2, keys: firstKey, do: func(t *tx, args []string) any {
		e := t.keys[args[1]]
		if !e.expires() {
			return int64(0)
		}
		e.put(e.value, 0)
		return int64(1)
	}}
	return table
}

// expires reports whether the key has an expiry.
func (e *entry) expires() bool {
	if e.changed && e.ttl != keepTTL {
		return e.exists && e.ttl > 0
	}
	return e.exists && e.lease != 0
}

func expire(t *tx, args []string, unit time.Duration, at bool) any {
	e := t.keys[args[1]]
	ttl, err := t.s.seconds(args[2], unit, at)
	if err != nil {
		return err
	}
	return e.expire(ttl)
}

// expire sets the expiry of an existing key. A time in the past removes it.
func (e *entry) expire(ttl int64) any {
	switch {
	case !e.exists:
		return int64(0)
	case ttl == past:
		e.remove()
	default:
		e.put(e.value, ttl)
	}
	return int64(1)
}
