package kvnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderlease/go/kvnode/store"
)

const (
	seedClients = 4
	seedKeys    = 2
)

// seedOp is one request of a client. A key is never deleted, so its versions count its
// writes.
type seedOp struct {
	client     int
	kind       string // put, cas, lease or round
	member     string
	key, value string
	expect     int64 // of a cas: the version that it replaces
	wrote      bool
	version    int64 // what it wrote, or saw
	err        error // of a write: it may have taken effect, unless nothing was done

	begin, end int           // in the order of all beginnings and ends
	from, to   time.Duration // in virtual time; only printed
}

func (o *seedOp) String() string {
	return fmt.Sprintf("%v-%v client %d %s %s at %s: version %d %s, %v", o.from, o.to, o.client, o.kind, o.key, o.member, o.version, o.value, o.err)
}

func (o *seedOp) writes() bool { return o.kind == "put" || o.kind == "cas" }

// history is what all clients saw.
type history struct {
	mu   sync.Mutex
	tick int
	ops  []*seedOp
}

func (h *history) now() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tick++
	return h.tick
}

func (h *history) add(o *seedOp) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

// print writes all in an order that does not depend on who came first in a moment.
func (h *history) print(w io.Writer) {
	slices.SortStableFunc(h.ops, func(a, b *seedOp) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.client, b.client)) })
	for _, o := range h.ops {
		fmt.Fprintln(w, o)
	}
}

type seedClient struct {
	run    *seedRun
	name   int
	random *rand.Rand
	count  int
	seen   [seedKeys]int64
}

func (c *seedClient) work(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(10_000+c.random.IntN(90_000)) * time.Microsecond)
		i, k, kind := c.random.IntN(len(c.run.members)), c.random.IntN(seedKeys), c.random.IntN(20)
		limit := time.Duration(300_000+c.random.IntN(3_000_000)) * time.Microsecond
		n := c.run.running[i].Load()
		if n == nil {
			continue
		}
		o := &seedOp{client: c.name, member: n.Name(), key: fmt.Sprintf("k%d", k), begin: c.run.history.now(), from: time.Since(c.run.began)}
		bounded, cancel := context.WithTimeout(context.Background(), limit)
		switch {
		case kind < 8:
			c.read(bounded, n, o, "lease", ReadLease)
		case kind < 11:
			c.read(bounded, n, o, "round", ReadIndex)
		default:
			c.write(bounded, n, o, kind < 15, c.seen[k])
		}
		cancel()
		o.end, o.to = c.run.history.now(), time.Since(c.run.began)
		if o.err == nil {
			c.seen[k] = o.version
		}
		c.run.history.add(o)
	}
}

func (c *seedClient) read(ctx context.Context, n *Node, o *seedOp, kind string, mode ReadMode) {
	o.kind = kind
	if _, o.err = n.Read(ctx, mode); o.err != nil {
		return
	}
	if kv, _ := n.Store().Get([]byte(o.key)); kv != nil {
		o.version, o.value = kv.GetVersion(), string(kv.GetValue())
	}
}

// write is a put, or a compare-and-swap that expects the version that the client knows.
func (c *seedClient) write(ctx context.Context, n *Node, o *seedOp, swap bool, expect int64) {
	c.count++
	o.kind, o.value, o.expect = "put", fmt.Sprintf("%d.%d", c.name, c.count), expect
	key := []byte(o.key)
	req := &pb.PutRequest{Key: key, Value: []byte(o.value), PrevKv: true}
	r := &pb.InternalRaftRequest{Put: req}
	if swap {
		o.kind = "cas"
		r = &pb.InternalRaftRequest{Txn: &pb.TxnRequest{
			Compare: []*pb.Compare{{Key: key, Target: pb.Compare_VERSION, TargetUnion: &pb.Compare_Version{Version: expect}}},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: req}}},
			Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}},
		}}
	}
	res, err := n.Propose(ctx, r)
	if o.err = errors.Join(err, res.Err); o.err != nil {
		return
	}
	o.outcome(res)
}

func (o *seedOp) outcome(res store.Result) {
	put, _ := res.Response.(*pb.PutResponse)
	if txn, ok := res.Response.(*pb.TxnResponse); ok {
		put = txn.GetResponses()[0].GetResponsePut()
		if put == nil {
			for _, kv := range txn.GetResponses()[0].GetResponseRange().GetKvs() {
				o.version = kv.GetVersion()
			}
			o.value = ""
			return
		}
	}
	o.wrote, o.version = true, put.GetPrevKv().GetVersion()+1
}

// nothingDone: a write that is refused so must not take effect.
func nothingDone(err error) bool {
	return errors.Is(err, ErrNoLeader) || errors.Is(err, ErrDiskFull) || errors.Is(err, ErrTooManyRequests)
}

// judge holds the history against the writes of a store when all is over. Versions
// order everything that was done to a key, so a history is linearizable if no request
// that ended before another began is later in that order.
func (h *history) judge(t *testing.T, s *store.Store) {
	t.Helper()
	for k := range seedKeys {
		key := fmt.Sprintf("k%d", k)
		values := []string{""}
		_, err := s.History(1, 1<<30, func(w store.Write) bool {
			if string(w.KV.GetKey()) == key {
				values = append(values, string(w.KV.GetValue()))
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		h.judgeKey(t, key, values)
	}
}

// judgeKey judges what was done to a key whose versions had values.
func (h *history) judgeKey(t *testing.T, key string, values []string) {
	t.Helper()
	var done []*seedOp
	for _, o := range h.ops {
		if o.key != key {
			continue
		}
		at := int64(slices.Index(values[1:], o.value) + 1)
		switch {
		case o.writes() && o.err != nil && at > 0:
			if nothingDone(o.err) {
				t.Errorf("refused, and done: %v", o)
			}
			o.wrote, o.version, o.end = true, at, h.tick+1
		case o.err != nil:
			continue
		case o.version >= int64(len(values)), (o.wrote || !o.writes()) && values[o.version] != o.value:
			t.Errorf("lost: %v; there are %d versions", o, len(values)-1)
		case o.kind == "cas" && o.wrote != (o.version == o.expect+1) && (o.wrote || o.version == o.expect):
			t.Errorf("a swap of version %d: %v", o.expect, o)
		}
		done = append(done, o)
	}
	for _, a := range done {
		for _, b := range done {
			if a.end < b.begin && (a.version > b.version || a.version == b.version && b.wrote) {
				t.Errorf("not linearizable: first %v\n\tthen %v", a, b)
			}
		}
	}
	if done == nil {
		t.Errorf("nothing was done to %s", key)
	}
}
