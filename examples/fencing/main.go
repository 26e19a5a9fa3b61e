// Command fencing pauses the holder of a lock, lets another client take the lock,
// and wakes the first. Its late write is refused: in kvnode by a transaction that
// compares the create revision of the lock's key, and outside kvnode by a resource
// with package fence, which uses the same number as its token.
//
// The clients are etcd's own, unmodified.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/leaderlease/go/kvnode"
	"github.com/leaderlease/go/kvnode/server"
	"github.com/leaderlease/go/leaderlease/fence"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run starts a cluster of one member for the story.
func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "fencing")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var ports net.ListenConfig
	peers, err := ports.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	clients, err := ports.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, peers.Close())
	}
	s, err := server.Start(server.Config{Node: kvnode.Config{DataDir: dir, Listener: peers}, ClientListener: clients})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop(context.WithoutCancel(ctx))) }()
	client, err := clientv3.New(clientv3.Config{Endpoints: s.ClientAddrs(), Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	return story(ctx, client, out)
}

// resource is a resource outside the cluster that the lock protects.
type resource struct {
	gate    fence.Gate
	content string
}

func (r *resource) write(token fence.Token, content string) error {
	return r.gate.Do(token, func() error {
		r.content = content
		return nil
	})
}

func story(ctx context.Context, client *clientv3.Client, out io.Writer) error {
	var r resource
	first, err := acquire(ctx, client)
	if err != nil {
		return err
	}
	if err := first.write(ctx, &r, "by the first"); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, "the first holder has written, and is paused")
	first.session.Orphan() // no keep-alives: as if it were stopped

	second, err := acquire(ctx, client)
	if err != nil {
		return err
	}
	defer func() { _ = second.session.Close() }() // its TTL does it, too
	if err := second.write(ctx, &r, "by the second"); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, "the second holder has written; its token is higher:", first.token.Less(second.token))

	_, _ = fmt.Fprintln(out, "the first wakes up and writes:")
	_, _ = fmt.Fprintln(out, "  to kvnode:   ", first.writeInside(ctx, "late"))
	_, _ = fmt.Fprintln(out, "  to the other: refused as stale:", errors.Is(r.write(first.token, "late"), fence.ErrStale))
	inside, err := client.Get(ctx, "guarded")
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "kvnode has %q, the other %q\n", inside.Kvs[0].GetValue(), r.content)
	return nil
}

// holder is a client that holds the lock, or believes so.
type holder struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
	token   fence.Token
}

func acquire(ctx context.Context, client *clientv3.Client) (*holder, error) {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(2))
	if err != nil {
		return nil, err
	}
	h := &holder{session: session, mutex: concurrency.NewMutex(session, "/lock")}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := h.mutex.Lock(ctx); err != nil {
		return nil, err
	}
	key, err := client.Get(ctx, h.mutex.Key())
	if err != nil {
		return nil, err
	}
	if len(key.Kvs) == 0 {
		return nil, concurrency.ErrSessionExpired
	}
	h.token = fence.Token{Index: uint64(key.Kvs[0].GetCreateRevision())}
	return h, nil
}

var errLost = errors.New("refused: the lock is lost")

// writeInside writes in one transaction, if the lock's key still has its create
// revision.
func (h *holder) writeInside(ctx context.Context, content string) error {
	resp, err := h.session.Client().Txn(ctx).If(h.mutex.IsOwner()).Then(clientv3.OpPut("guarded", content)).Commit()
	if err == nil && !resp.Succeeded {
		err = errLost
	}
	return err
}

func (h *holder) write(ctx context.Context, r *resource, content string) error {
	return errors.Join(h.writeInside(ctx, content), r.write(h.token, content))
}
