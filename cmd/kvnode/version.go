package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	"github.com/leaderlease/go/kvnode/server"
)

func newVersion(sys *System) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of kvnode, and of the etcd API that it speaks",
		Args:  settings.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(sys.Stdout, versionText())
			return err
		},
	}
}

// versionText returns the lines of etcd --version. Test harnesses parse the line "etcd Version", so it
// has only the version of the etcd API that is served.
func versionText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "kvnode Version: %s\n", server.Version())
	fmt.Fprintf(&b, "etcd Version: %s\n", server.EtcdVersion)
	fmt.Fprintf(&b, "Git SHA: %s\n", commit())
	fmt.Fprintf(&b, "Go Version: %s\n", runtime.Version())
	fmt.Fprintf(&b, "Go OS/Arch: %s/%s\n", runtime.GOOS, runtime.GOARCH)
	return b.String()
}

// commit returns the commit that the program was built from, with its date.
func commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return commitOf(info)
	}
	return "unknown"
}

func commitOf(info *debug.BuildInfo) string {
	commit := "unknown"
	for _, s := range info.Settings { // vcs.revision, vcs.time, vcs.modified, in this order
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.time":
			commit += " of " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			commit += " with changes"
		}
	}
	return commit
}
