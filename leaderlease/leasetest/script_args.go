package leasetest

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.etcd.io/raft/v3/raftpb"
)

// args reads the arguments of one directive. An argument that the directive does not read
// is an error.
type args struct {
	t    *testing.T
	d    *datadriven.TestData
	used map[string]bool
}

func (a *args) fail(format string, v ...any) {
	a.t.Helper()
	a.d.Fatalf(a.t, format, v...)
}

// done fails the test if an argument was misspelt.
func (a *args) done() {
	a.t.Helper()
	for i, arg := range a.d.CmdArgs {
		if !a.used[arg.Key] && !a.used[place(i)] {
			a.fail("%s: unknown argument %s", a.d.Cmd, arg.Key)
		}
	}
}

func place(i int) string { return "#" + strconv.Itoa(i) }

// has reports whether there is an argument without a value in place i.
func (a *args) has(i int) bool { return i < len(a.d.CmdArgs) && len(a.d.CmdArgs[i].Vals) == 0 }

// text returns the argument in place i, "" if there is none.
func (a *args) text(i int) string {
	a.t.Helper()
	if i >= len(a.d.CmdArgs) {
		a.fail("%s: argument %d is missing", a.d.Cmd, i+1)
	}
	a.used[place(i)] = true
	return a.d.CmdArgs[i].Key
}

// node returns the node named in place i.
func (a *args) node(s *script, i int) *Node {
	a.t.Helper()
	n := s.c.Node(a.parseID(a.text(i)))
	if n == nil {
		a.fail("%s: no node %s", a.d.Cmd, a.d.CmdArgs[i].Key)
	}
	return n
}

func (a *args) parseID(s string) uint64 {
	a.t.Helper()
	id, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		a.fail("%s: %v", a.d.Cmd, err)
	}
	return id
}

func (a *args) parseDuration(s string) time.Duration {
	a.t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		a.fail("%s: %v", a.d.Cmd, err)
	}
	return d
}

// values returns the values of a named argument.
func (a *args) values(key string) []string {
	arg, ok := a.d.Arg(key)
	if !ok {
		return nil
	}
	a.used[key] = true
	return arg.Vals
}

func (a *args) flag(key string) bool {
	if !a.d.HasArg(key) {
		return false
	}
	a.used[key] = true
	return true
}

func (a *args) ids(key string) (ids []uint64) {
	a.t.Helper()
	for _, v := range a.values(key) {
		ids = append(ids, a.parseID(v))
	}
	return ids
}

// id returns the one ID of a named argument that must be there.
func (a *args) id(key string) uint64 {
	a.t.Helper()
	ids := a.ids(key)
	if len(ids) != 1 {
		a.fail("%s: %s needs one value", a.d.Cmd, key)
	}
	return ids[0]
}

// number returns a named argument, 0 if it is not there.
func (a *args) number(key string) int {
	a.t.Helper()
	v := a.values(key)
	if len(v) == 0 {
		return 0
	}
	n, err := strconv.Atoi(v[0])
	if err != nil {
		a.fail("%s: %s: %v", a.d.Cmd, key, err)
	}
	return n
}

func (a *args) float(key string) (f float64, ok bool) {
	a.t.Helper()
	v := a.values(key)
	if len(v) == 0 {
		return 0, false
	}
	f, err := strconv.ParseFloat(v[0], 64)
	if err != nil {
		a.fail("%s: %s: %v", a.d.Cmd, key, err)
	}
	return f, true
}

func (a *args) duration(key string, otherwise time.Duration) time.Duration {
	a.t.Helper()
	v := a.values(key)
	if len(v) == 0 {
		return otherwise
	}
	return a.parseDuration(v[0])
}

// matcher says which messages a directive is about.
type matcher struct {
	types    []raftpb.MessageType
	from, to []uint64
}

func (a *args) matcher() *matcher {
	a.t.Helper()
	m := &matcher{from: a.ids("from"), to: a.ids("to")}
	for _, name := range a.values("type") {
		v, ok := raftpb.MessageType_value[name]
		if !ok {
			a.fail("%s: no message type %s", a.d.Cmd, name)
		}
		m.types = append(m.types, raftpb.MessageType(v))
	}
	return m
}

func (m *matcher) match(msg *raftpb.Message) bool {
	return (len(m.types) == 0 || slices.Contains(m.types, msg.GetType())) &&
		(len(m.from) == 0 || slices.Contains(m.from, msg.GetFrom())) &&
		(len(m.to) == 0 || slices.Contains(m.to, msg.GetTo()))
}
