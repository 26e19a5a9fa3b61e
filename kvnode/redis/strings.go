package redis

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// bulk is the reply for the value.
func (e *entry) bulk() any {
	if !e.exists {
		return nil
	}
	return e.value
}

// add adds an integer to the value, or subtracts it with sign -1.
func (e *entry) add(text string, sign int64) any {
	by, err := strconv.ParseInt(text, 10, 64)
	if err != nil || sign < 0 && by == math.MinInt64 {
		return errInteger
	}
	by *= sign
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
	if n := len(e.value) + len(args[2]); n > t.s.limits.bulk {
		return exceeds("bytes of a value", n, t.s.limits.bulk)
	}
	if t.err = t.mem.take(values, len(e.value)+len(args[2])); t.err == nil { // replies may have the values before
		e.put(e.value+args[2], keepTTL)
	}
	return int64(len(e.value))
}

func mget(t *tx, args []string) any {
	all := make([]any, len(args)-1)
	for i, k := range args[1:] {
		all[i] = t.keys[k].bulk()
	}
	return all
}

func mset(t *tx, args []string) any {
	for i := 1; i < len(args); i += 2 {
		t.keys[args[i]].put(args[i+1], 0)
	}
	return ok
}

func exists(t *tx, args []string) any {
	n := int64(0)
	for _, k := range args[1:] {
		if t.keys[k].exists {
			n++
		}
	}
	return n
}

func del(t *tx, args []string) any {
	n := int64(0)
	for _, k := range args[1:] {
		if t.keys[k].exists {
			n++
			t.keys[k].remove()
		}
	}
	return n
}

func typeOf(t *tx, args []string) any {
	if !t.keys[args[1]].exists {
		return simple("none")
	}
	return simple("string")
}

func getdel(t *tx, args []string) any {
	old := t.keys[args[1]].bulk()
	del(t, args)
	return old
}

func setnx(t *tx, args []string) any {
	if t.keys[args[1]].exists {
		return int64(0)
	}
	if err := t.keys[args[1]].putNew(args[2], 0); err != nil {
		return err
	}
	return int64(1)
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
			if o.ttl, err = s.positive(args[i], u.unit, u.at); err != nil {
				return o, err
			}
			timed = true
		default:
			return o, errSyntax
		}
	}
	return o, nil
}

func setNeeds(args []string) need {
	switch {
	case len(args) == 3 || len(args) == 5 && (strings.EqualFold(args[3], "EX") || strings.EqualFold(args[3], "PX")):
		return needsNothing
	case len(args) >= 4 && strings.EqualFold(args[3], "NX") && !slices.ContainsFunc(args[4:], func(o string) bool { return strings.EqualFold(o, "GET") }):
		return needsKey
	}
	return needsValue
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
	case won && o.nx:
		err = e.putNew(args[2], o.ttl)
	case won:
		e.put(args[2], o.ttl)
	}
	if err != nil {
		return err
	}
	if o.nx && o.ttl > 0 {
		t.recordStep(map[bool]string{true: acquired, false: contended}[won], args[1], args[2])
	}
	switch {
	case o.get:
		return old
	case won:
		return ok
	}
	return nil
}
