package server

import (
	"runtime/debug"
	"sync"
)

// module is where kvnode's version is recorded when it is built into another
// program.
const module = "github.com/leaderlease/go"

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
