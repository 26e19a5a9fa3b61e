package load

import (
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leaderlease/go/internal/linz"
)

// version is what a list of at most one key says of it.
func version(kvs []*mvccpb.KeyValue) linz.Version {
	if len(kvs) == 0 {
		return linz.Version{}
	}
	return linz.Version{Value: string(kvs[0].GetValue()), Mod: kvs[0].GetModRevision()}
}
