// Command etcd is etcd itself, built from the module proxy, to compare with. It
// has its own module, so that nothing else links etcd's server.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
