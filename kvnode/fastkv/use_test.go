package fastkv

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/ordering"
)

// A namespace, or whatever else a client's KV was given, is not lost in silence: keys would
// be read and written outside of it.
func TestUseLosesNoWrapper(t *testing.T) {
	for name, wrap := range map[string]func(clientv3.KV) clientv3.KV{
		"a namespace": func(kv clientv3.KV) clientv3.KV { return namespace.NewKV(kv, "a/") },
		"an order":    func(kv clientv3.KV) clientv3.KV { return ordering.NewKV(kv, nil) },
		"a service":   func(clientv3.KV) clientv3.KV { return clientv3.NewKVFromKVClient(nil, nil) }, // as etcd has it in its own process
		"nothing":     func(clientv3.KV) clientv3.KV { return nil },
	} {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}}) // where nobody is
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		wrapped := wrap(c.KV)
		c.KV = wrapped
		if err := Use(c); err == nil || !strings.Contains(err.Error(), "wrap it after Use") {
			t.Errorf("Use() of a client that has %s around its KV = %v, want an error that says what to do", name, err)
		}
		if c.KV != wrapped {
			t.Errorf("Use() of a client that has %s around its KV has failed, and replaced it by a %T", name, c.KV)
		}
	}
}
