package integration

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/kvnode/fastkv"
)

// All clients of the tests send the requests of the KV service by a stream.
func init() { clientv3.KVClient = fastkv.New }
