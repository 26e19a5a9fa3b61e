package atsize

import (
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/kvclient"
)

// clients are connections to one endpoint.
type clients []*clientv3.Client

func dial(endpoint string, n int) (c clients, err error) {
	for range n {
		client, err := kvclient.New(nil, []string{endpoint})
		if err != nil {
			return nil, errors.Join(err, kvclient.Close(c))
		}
		c = append(c, client)
	}
	return c, nil
}
