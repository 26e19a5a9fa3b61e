package redis

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

const (
	// maxOps is etcd's default limit of operations in a transaction.
	maxOps = 128
	// chunk is the number of keys that are read in one request. etcd allows 128 operations.
	chunk = 64
	// retryWait is the time between tries that find an ended lease, and the longest one after a conflict.
	retryWait = 10 * time.Millisecond
	// maxWrite is etcd's default limit of a request. gRPC's own limit is a little higher; its error would not
	// prove that the write was not sent.
	maxWrite = 3 << 19
)

// entry is a key in a transaction: as read, and then as the commands have left it.
type entry struct {
	// need is what the commands need to know of the key.
	need need

	value  string
	exists bool
	// mod, create and lease are as read.
	mod, create int64
	lease       clientv3.LeaseID
	// had is whether the key existed.
	had bool
	// changed is set by put and remove.
	changed bool
	// created is set by putNew, hasToken once a reply has the revision of this transaction as its token.
	created, hasToken bool
	// ttl is the expiry in seconds of a changed key: 0 is none, keepTTL the present one.
	ttl int64
}

const keepTTL = -1

func (e *entry) put(value string, ttl int64) {
	if !e.exists && ttl == keepTTL {
		ttl = 0
	}
	if ttl == keepTTL && e.changed { // what an earlier command of the transaction has set stays
		ttl = e.ttl
	}
	e.value, e.exists, e.changed, e.ttl = value, true, true, ttl
}

// putNew puts a key that does not exist. It fails if the transaction has removed the key before, because etcd would
// then keep the previous holder's fencing token.
func (e *entry) putNew(value string, ttl int64) error {
	if e.had || e.created {
		return failure("ERR nothing was locked: the same MULTI deletes the key before")
	}
	e.put(value, ttl)
	e.created = true
	return nil
}

func (e *entry) remove() {
	e.value, e.exists, e.changed, e.ttl = "", false, e.had, 0
}

// tx is an attempt at a transaction.
type tx struct {
	s     *Server
	mem   *memory
	ctx   context.Context //nolint:containedctx // of this attempt
	began time.Time
	keys  map[string]*entry
	// order is the keys in the order of their first use.
	order []string
	// done are called after the commit.
	done []func()
	// stale is set if a TTL lease has ended since its key was read.
	stale bool
	// err ends the attempt before it writes.
	err error
	// granted are the leases of a commit with compares that have failed.
	granted []clientv3.LeaseID
}

// errAborted means that a watched key has changed.
var errAborted = errors.New("redis: transaction aborted")

// errRepeated means that clientv3 has sent a write twice, and that the second attempt failed because the first was
// applied.
var errRepeated = errors.New("the write was sent more than once")

// transact runs commands with keys as one transaction on one revision. If a key has changed between the read and
// the write, nothing was written, and transact tries again. Its error is a failure or errAborted.
func (c *conn) transact(cmds [][]string, watched map[string]int64) (replies []any, err error) {
	ctx, cancel := context.WithTimeout(c.s.ctx, c.s.cfg.Timeout)
	defer cancel()
	began := time.Now()
	var granted []clientv3.LeaseID // by the previous try; its compares failed
	defer func() { c.s.leases.leave(errors.New("a key may have it"), granted...) }()
	defer c.unlockKeys()
	for try := 0; ; try++ {
		t := &tx{s: c.s, mem: &c.mem, ctx: ctx, began: began, keys: make(map[string]*entry, len(cmds))}
		if err := t.load(cmds, watched, try == 0); err != nil {
			return nil, readFailure(err)
		}
		if t.holds(granted) {
			return nil, c.s.writeFailure(errRepeated)
		}
		c.s.leases.revoke(ctx, granted...)
		granted = nil
		for k, mod := range watched {
			if t.keys[k].mod != mod {
				return nil, errAborted
			}
		}
		replies, err := t.do(cmds)
		if err != nil {
			return nil, readFailure(err)
		}
		if t.stale { // until the members know of the end of the lease
			pause(ctx, retryWait)
			continue
		}
		if changed, err := c.lockKeys(t); changed {
			continue
		} else if err != nil {
			return nil, c.s.writeFailure(err)
		}
		rev, committed, err := t.commit()
		if err != nil {
			return nil, c.s.writeFailure(err)
		}
		if !committed {
			granted = t.granted
			pause(ctx, rand.N(retryWait)) // another gateway, or another client
			continue
		}
		for _, f := range t.done {
			f()
		}
		for i, r := range replies {
			if _, is := r.(token); is {
				replies[i] = rev
			}
		}
		return replies, nil
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// do computes the replies of commands. After an error, nothing may be written.
func (t *tx) do(cmds [][]string) ([]any, error) {
	replies := make([]any, len(cmds))
	for i, args := range cmds {
		replies[i] = commands[strings.ToUpper(args[0])].do(t, args)
		if err := cmp.Or(t.err, t.ctx.Err()); err != nil {
			return nil, err
		}
	}
	for _, e := range t.keys {
		if e.hasToken && !e.exists {
			return nil, failure("ERR nothing was written: the MULTI deletes a key that it has locked")
		}
	}
	return replies, nil
}

// load reads the keys of the commands at one revision. On the first try, it reads no more than they need.
func (t *tx) load(cmds [][]string, watched map[string]int64, first bool) error {
	t.mem.free(values) // of the attempt before
	if err := t.useAll(cmds, watched); err != nil {
		return err
	}
	var read []string
	for _, k := range t.order {
		e := t.keys[k]
		// The response to a blind write has the previous values, so a large transaction reads them in parts. A
		// second try needs to know the leases.
		if e.need == needsNothing && len(t.order) > maxRun || !first {
			e.need = needsValue
		}
		if e.need < needsNothing {
			read = append(read, k)
		}
	}
	rev := int64(0)
	for part := range slices.Chunk(read, chunk) {
		kvs, at, err := t.s.read(t.ctx, part, rev, func(k string) bool { return t.keys[k].need == needsKey })
		if err != nil {
			return err
		}
		if rev == 0 {
			rev = at // later headers have the newest revision, not the one that was read
		}
		for j, kv := range kvs {
			if kv == nil {
				continue
			}
			if err := t.mem.take(values, len(kv.GetValue())); err != nil {
				return err
			}
			e := t.keys[part[j]]
			*e = entry{
				need: e.need, value: string(kv.GetValue()), exists: true, had: true,
				mod: kv.GetModRevision(), create: kv.GetCreateRevision(), lease: clientv3.LeaseID(kv.GetLease()),
			}
		}
	}
	return nil
}

// useAll finds out which keys the commands use.
func (t *tx) useAll(cmds [][]string, watched map[string]int64) error {
	for _, args := range cmds {
		cmd := commands[strings.ToUpper(args[0])]
		keys, err := keysOf(args)
		if err == nil {
			err = t.mem.take(values, keyOverhead*len(keys))
		}
		if err != nil {
			return err
		}
		for _, k := range keys {
			n := needsValue
			if cmd.needs != nil {
				n = cmd.needs(args)
			}
			t.use(k, n)
		}
	}
	for k := range watched {
		t.use(k, needsKey)
	}
	return nil
}

func (t *tx) use(key string, n need) {
	if e, is := t.keys[key]; is {
		if e.need != n { // a write that replaces a key which was read must know its lease
			e.need = needsValue
		}
		return
	}
	t.keys[key] = &entry{need: n}
	t.order = append(t.order, key)
}

// holds reports whether a key has one of the leases.
func (t *tx) holds(ids []clientv3.LeaseID) bool {
	return slices.ContainsFunc(t.order, func(k string) bool { return slices.Contains(ids, t.keys[k].lease) })
}

// read reads keys at one revision, 0 for the newest. A missing key's entry is nil.
func (s *Server) read(ctx context.Context, keys []string, rev int64, keyOnly func(key string) bool) ([]*mvccpb.KeyValue, int64, error) {
	opts := func(k string) []clientv3.OpOption {
		if keyOnly(k) {
			return []clientv3.OpOption{clientv3.WithRev(rev), clientv3.WithKeysOnly()}
		}
		return []clientv3.OpOption{clientv3.WithRev(rev)}
	}
	kvs := make([]*mvccpb.KeyValue, len(keys))
	if len(keys) == 1 {
		got, err := s.cfg.KV.Get(ctx, keys[0], opts(keys[0])...)
		if err != nil {
			return nil, 0, err
		}
		if len(got.Kvs) > 0 {
			kvs[0] = got.Kvs[0]
		}
		return kvs, got.Header.GetRevision(), nil
	}
	ops := make([]clientv3.Op, len(keys))
	for i, k := range keys {
		ops[i] = clientv3.OpGet(k, opts(k)...)
	}
	got, err := s.cfg.KV.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, 0, err
	}
	for i, r := range got.Responses {
		if found := r.GetResponseRange().GetKvs(); len(found) > 0 {
			kvs[i] = found[0]
		}
	}
	return kvs, got.Header.GetRevision(), nil
}

// plan is what a transaction writes.
type plan struct {
	compares []clientv3.Cmp
	ops      []clientv3.Op
	granted  []clientv3.LeaseID // for its keys
	replaced []clientv3.LeaseID // hold no key once it is committed
}

// size returns the bytes of the keys and values that a transaction writes, and of the keys that it compares.
func (t *tx) size() (n int) {
	for _, k := range t.order {
		if e := t.keys[k]; e.changed {
			n += len(k) + len(e.value)
		}
		if t.keys[k].need < needsNothing {
			n += len(k)
		}
	}
	return n
}

func (t *tx) writes() bool {
	return slices.ContainsFunc(t.order, func(k string) bool { return t.keys[k].changed })
}

// plan returns what the transaction writes. It grants the TTL leases.
func (t *tx) plan() (p plan, err error) {
	switch n := t.size(); {
	case !t.writes():
		return p, nil
	case len(t.order) > maxOps:
		return p, failure("ERR nothing was written: " + tooLarge("keys of a command or MULTI", len(t.order), maxOps))
	case n > maxWrite:
		return p, failure("ERR nothing was written: " + tooLarge("bytes of a transaction", n, maxWrite))
	}
	var ttls []int64
	for _, k := range t.order {
		if e := t.keys[k]; e.changed && e.exists && e.ttl > 0 {
			ttls = append(ttls, e.ttl)
		}
	}
	if p.granted, err = t.s.leases.grant(t.ctx, ttls); err != nil {
		return p, notWrittenError{err}
	}
	unused := p.granted
	for _, k := range t.order {
		unused = p.add(k, t.keys[k], unused)
	}
	return p, nil
}

// add adds a key, which takes the first lease if it needs one.
func (p *plan) add(k string, e *entry, leases []clientv3.LeaseID) (rest []clientv3.LeaseID) {
	var opts []clientv3.OpOption
	if e.need == needsNothing {
		opts = append(opts, clientv3.WithPrevKV()) // shows the lease that it replaces
	} else {
		p.compares = append(p.compares, clientv3.Compare(clientv3.ModRevision(k), "=", e.mod))
	}
	keeps := e.exists && e.ttl == keepTTL && e.lease != 0
	if e.changed && !keeps {
		p.replaced = append(p.replaced, e.lease)
	}
	switch {
	case !e.changed:
		return leases
	case !e.exists:
		p.ops = append(p.ops, clientv3.OpDelete(k))
		return leases
	case keeps:
		opts = append(opts, clientv3.WithIgnoreLease())
	case e.ttl > 0:
		opts = append(opts, clientv3.WithLease(leases[0]))
		leases = leases[1:]
	}
	p.ops = append(p.ops, clientv3.OpPut(k, e.value, opts...))
	return leases
}

// commit writes what has changed if no key has changed since it was read.
func (t *tx) commit() (rev int64, committed bool, err error) {
	p, err := t.plan()
	unused := p.granted
	defer func() { t.s.leases.revoke(t.ctx, unused...) }()
	switch {
	case err != nil:
		return 0, false, err
	case len(p.ops) == 0: // the reads were of one revision
		return 0, true, nil
	case t.ctx.Err() != nil: // the request would not be sent
		return 0, false, notWrittenError{t.ctx.Err()}
	}
	got, err := t.s.cfg.KV.Txn(t.ctx).If(p.compares...).Then(p.ops...).Commit()
	switch {
	case err != nil:
		if !rejected(err) { // the key may hold the lease
			unused = nil
			t.s.leases.leave(err, p.granted...)
		}
		return 0, false, err
	case got.Succeeded:
		unused = p.replaced
		for _, r := range got.Responses {
			unused = append(unused, clientv3.LeaseID(r.GetResponsePut().GetPrevKv().GetLease()))
		}
		// If clientv3 has sent the write twice, it has replaced the granted lease by itself.
		unused = slices.DeleteFunc(unused, func(id clientv3.LeaseID) bool { return slices.Contains(p.granted, id) })
	default:
		t.granted, unused = p.granted, nil
	}
	return got.Header.GetRevision(), got.Succeeded, nil
}

// notWrittenError is an error before the write.
type notWrittenError struct{ error }

func (e notWrittenError) Unwrap() error { return e.error }

// rejected reports whether an error proves that nothing was written. Only the errors that etcd's API
// defines do: with the same code, gRPC reports a response that was too large. ErrNoSpace does not:
// etcd applies a write that reaches the quota, and then answers with it.
func rejected(err error) bool {
	if _, is := errors.AsType[notWrittenError](err); is {
		return true
	}
	// Both are answered before the write is proposed.
	if errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, rpctypes.ErrTooManyRequests) {
		return true
	}
	known, is := errors.AsType[rpctypes.EtcdError](err)
	if !is {
		return false
	}
	switch known.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.PermissionDenied,
		codes.Unauthenticated, codes.OutOfRange, codes.Unimplemented:
		return true
	default:
		return false
	}
}

// writeFailure is the reply for a write that has failed.
func (s *Server) writeFailure(err error) failure {
	if f, is := errors.AsType[failure](err); is {
		return f
	}
	if rejected(err) {
		return failf("ERR nothing was written: %v", err)
	}
	s.metrics.unknown.Inc()
	return failf("UNKNOWN the outcome of the write is unknown, it may take effect later: %v", err)
}

// readFailure is the reply for a read that has failed.
func readFailure(err error) failure {
	if f, is := errors.AsType[failure](err); is {
		return f
	}
	return failf("ERR nothing was written: the read failed: %v", err)
}
