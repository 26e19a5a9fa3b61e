// Command kvnode is a replicated key-value node that speaks the etcd v3 API.
package main

import (
	"os"

	"github.com/leaderlease/go/cmd/kvnode/internal/cli"
)

func main() { os.Exit(cli.Main(cli.OS())) }
