package server

import (
	"runtime/debug"
	"sync"

	"github.com/leaderlease/go/kvnode/internal/etcdapi"
)

// module is where kvnode's version is recorded when it is built into another
// program.
const module = "github.com/leaderlease/go"

// EtcdVersion is the version of etcd whose API the server answers. Clients parse it.
const EtcdVersion = etcdapi.Version

// DefaultQuotaBytes is the size limit of the store if Config.API.QuotaBytes is 0.
const DefaultQuotaBytes = etcdapi.DefaultQuotaBytes

// Version returns the version of kvnode that this program was built with,
// (devel) from a working tree without version control.
var Version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	if info.Main.Path == module {
		return info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version
		}
	}
	return "(unknown)"
})
