package redis

import (
	"context"
	"errors"
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
	// maxTries limits how often a transaction that was not applied is computed again.
	maxTries = 100
)

// entry is a key in a transaction: as read, and then as the commands have left it.
type entry struct {
	value  string
	exists bool
	// mod, create and lease are as read.
	mod, create int64
	lease       clientv3.LeaseID
	// had is whether the key existed.
	had bool
	// changed is set by put, expire and remove.
	changed bool
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

func (e *entry) remove() {
	e.value, e.exists, e.changed, e.ttl = "", false, e.had, 0
}

// tx is an attempt at a transaction.
type tx struct {
	s     *Server
	ctx   context.Context //nolint:containedctx // of this attempt
	began time.Time
	keys  map[string]*entry
	// order is the keys in the order of their first use.
	order []string
	// done are called after the commit.
	done []func()
	// stale is set if something read later does not belong to what was read first.
	stale bool
}

// errAborted means that a watched key has changed.
var errAborted = errors.New("redis: transaction aborted")

// transact runs commands with keys as one transaction on one revision. It is computed again if a key has
// changed between the read and the write, as nothing was written then. Its error is a failure or errAborted.
func (s *Server) transact(ctx context.Context, cmds [][]string, watched map[string]int64) (replies []any, err error) {
	for range maxTries {
		t := &tx{s: s, ctx: ctx, began: time.Now(), keys: make(map[string]*entry)}
		if err := t.load(cmds, watched); err != nil {
			return nil, readFailure(err)
		}
		for k, mod := range watched {
			if t.keys[k].mod != mod {
				return nil, errAborted
			}
		}
		replies := make([]any, len(cmds))
		for i, args := range cmds {
			replies[i] = commands[strings.ToUpper(args[0])].do(t, args)
		}
		if t.stale {
			continue
		}
		rev, committed, err := t.commit()
		if err != nil {
			return nil, s.writeFailure(err)
		}
		if !committed {
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
	return nil, failure("ERR nothing was written: the keys change too often")
}

// load reads all keys of the commands at one revision.
func (t *tx) load(cmds [][]string, watched map[string]int64) error {
	for _, args := range cmds {
		keys, err := commands[strings.ToUpper(args[0])].keys(args)
		if err != nil {
			return err
		}
		for _, k := range keys {
			t.use(k)
		}
	}
	for k := range watched {
		t.use(k)
	}
	size, rev := 0, int64(0)
	for i := 0; i < len(t.order); i += chunk {
		part := t.order[i:min(i+chunk, len(t.order))]
		kvs, at, err := t.s.read(t.ctx, part, rev)
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
			if size += len(kv.GetValue()); size > t.s.cfg.MaxReply {
				return failf("ERR the values exceed %d bytes", t.s.cfg.MaxReply)
			}
			*t.keys[part[j]] = entry{
				value: string(kv.GetValue()), exists: true, had: true,
				mod: kv.GetModRevision(), create: kv.GetCreateRevision(), lease: clientv3.LeaseID(kv.GetLease()),
			}
		}
	}
	return nil
}

func (t *tx) use(key string) {
	if _, is := t.keys[key]; !is {
		t.keys[key] = new(entry)
		t.order = append(t.order, key)
	}
}

// read reads keys at one revision, 0 for the newest. A missing key's entry is nil.
func (s *Server) read(ctx context.Context, keys []string, rev int64, opts ...clientv3.OpOption) ([]*mvccpb.KeyValue, int64, error) {
	if rev > 0 {
		opts = append(opts, clientv3.WithRev(rev))
	}
	kvs := make([]*mvccpb.KeyValue, len(keys))
	if len(keys) == 1 {
		got, err := s.cfg.KV.Get(ctx, keys[0], opts...)
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
		ops[i] = clientv3.OpGet(k, opts...)
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

// plan grants the leases of the transaction.
func (t *tx) plan() (p plan, err error) {
	if len(t.order) > maxOps && slices.ContainsFunc(t.order, func(k string) bool { return t.keys[k].changed }) {
		return p, failf("ERR nothing was written: %d keys in a command or MULTI, at most %d", len(t.order), maxOps)
	}
	for _, k := range t.order {
		e := t.keys[k]
		p.compares = append(p.compares, clientv3.Compare(clientv3.ModRevision(k), "=", e.mod))
		if !e.changed {
			continue
		}
		keeps := e.exists && e.ttl == keepTTL && e.lease != 0
		if e.lease != 0 && !keeps {
			p.replaced = append(p.replaced, e.lease)
		}
		switch {
		case !e.exists:
			p.ops = append(p.ops, clientv3.OpDelete(k))
		case keeps:
			p.ops = append(p.ops, clientv3.OpPut(k, e.value, clientv3.WithIgnoreLease()))
		case e.ttl > 0:
			id, err := t.s.leases.grant(t.ctx, e.ttl)
			if err != nil {
				return p, notWrittenError{err}
			}
			p.granted = append(p.granted, id)
			p.ops = append(p.ops, clientv3.OpPut(k, e.value, clientv3.WithLease(id)))
		default:
			p.ops = append(p.ops, clientv3.OpPut(k, e.value))
		}
	}
	return p, nil
}

// commit writes what has changed if no key has changed since it was read.
func (t *tx) commit() (rev int64, committed bool, err error) {
	p, err := t.plan()
	if err != nil {
		t.s.leases.revoke(p.granted...)
		return 0, false, err
	}
	if len(p.ops) == 0 { // the reads were of one revision
		return 0, true, nil
	}
	got, err := t.s.cfg.KV.Txn(t.ctx).If(p.compares...).Then(p.ops...).Commit()
	switch {
	case err != nil:
		if rejected(err) { // else the key may hold the lease
			t.s.leases.revoke(p.granted...)
		}
		return 0, false, err
	case !got.Succeeded:
		t.s.leases.revoke(p.granted...)
		return 0, false, nil
	}
	t.s.leases.revoke(p.replaced...)
	return got.Header.GetRevision(), true, nil
}

// notWrittenError is an error before the write.
type notWrittenError struct{ error }

func (e notWrittenError) Unwrap() error { return e.error }

// rejected reports whether an error proves that nothing was written. Only the errors that etcd's API
// defines do: with the same code, gRPC reports a response that was too large. ResourceExhausted does not:
// etcd applies a write that reaches the quota, and then answers ErrNoSpace.
func rejected(err error) bool {
	if _, is := errors.AsType[notWrittenError](err); is {
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

// runGets serves the plain GETs at the front of a batch with one read, and returns their number.
func (c *conn) runGets(batch [][]string) int {
	var keys []string
	for _, args := range batch {
		if len(args) != 2 || !strings.EqualFold(args[0], "GET") || args[1] == "" || len(keys) == chunk {
			break
		}
		keys = append(keys, args[1])
	}
	if len(keys) == 0 {
		return 0
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(c.s.ctx, c.s.cfg.Timeout)
	defer cancel()
	kvs, _, err := c.s.read(ctx, keys, 0)
	for i := range keys {
		c.s.metrics.command("GET", err != nil, time.Since(began))
		switch {
		case err != nil:
			c.reply(readFailure(err))
		case kvs[i] == nil:
			c.reply(nil)
		default:
			c.reply(string(kvs[i].GetValue()))
		}
	}
	return len(keys)
}

// runSets serves the SETs without options of different keys at the front of a batch with one request, and
// returns their number.
func (c *conn) runSets(batch [][]string) int {
	var ops []clientv3.Op
	seen := make(map[string]bool)
	for _, args := range batch {
		if len(args) != 3 || !strings.EqualFold(args[0], "SET") || args[1] == "" || seen[args[1]] || len(ops) == chunk {
			break
		}
		seen[args[1]] = true
		ops = append(ops, clientv3.OpPut(args[1], args[2], clientv3.WithPrevKV()))
	}
	if len(ops) == 0 {
		return 0
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(c.s.ctx, c.s.cfg.Timeout)
	defer cancel()
	err := c.s.put(ctx, ops)
	for range ops {
		c.s.metrics.command("SET", err != nil, time.Since(began))
		if err != nil {
			c.reply(c.s.writeFailure(err))
			continue
		}
		c.reply(ok)
	}
	return len(ops)
}

// put writes keys in one request, and revokes the leases that they had.
func (s *Server) put(ctx context.Context, ops []clientv3.Op) error {
	if len(ops) == 1 {
		got, err := s.cfg.KV.Do(ctx, ops[0])
		if err == nil {
			s.leases.revoke(clientv3.LeaseID(got.Put().PrevKv.GetLease()))
		}
		return err
	}
	got, err := s.cfg.KV.Txn(ctx).Then(ops...).Commit()
	if err == nil {
		for _, r := range got.Responses {
			s.leases.revoke(clientv3.LeaseID(r.GetResponsePut().GetPrevKv().GetLease()))
		}
	}
	return err
}
