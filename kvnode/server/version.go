package server

import (
	"cmp"
	"runtime/debug"
	"sync"

	"github.com/leaderlease/go/kvnode/internal/etcdapi"
)

// module is where kvnode's version is recorded when it is built into another
// program.
const module = "github.com/leaderlease/go"

const unknown = "unknown"

// EtcdVersion is the version of etcd whose API the server answers. Clients parse it.
const EtcdVersion = etcdapi.Version

// DefaultQuotaBytes is the size limit of the store if Config.API.QuotaBytes is 0.
const DefaultQuotaBytes = etcdapi.DefaultQuotaBytes

// Version returns the version of kvnode that this program was built with, with commit and date
// for a build from a checkout. It is "unknown" if the build had no information of version control.
var Version = sync.OnceValue(func() string {
	info, _ := debug.ReadBuildInfo()
	return versionIn(info)
})

func versionIn(info *debug.BuildInfo) string {
	if info == nil {
		return unknown
	}
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == module && m.Version != "(devel)" {
			return cmp.Or(m.Version, unknown)
		}
	}
	return unknown
}
