package server

import (
	"runtime/debug"
	"sync"

	"github.com/leaderlease/go/kvnode/internal/etcdapi"
)

// module is where kvnode's version is recorded when it is built into another program.
const module = "github.com/leaderlease/go"

// EtcdVersion is the version of etcd whose API the server answers. Clients parse it.
const EtcdVersion = etcdapi.Version

// DefaultQuotaBytes is the size limit of the store if Config.API.QuotaBytes is 0.
const DefaultQuotaBytes = etcdapi.DefaultQuotaBytes

// Version returns the version of kvnode that this program was built with, which has commit and date
// in a checkout. It is "unknown" if the build had no information of version control.
var Version = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == module && m.Version != "(devel)" {
				return m.Version
			}
		}
	}
	return "unknown"
})
