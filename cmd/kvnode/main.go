// Command kvnode is a replicated key-value node that speaks the etcd v3 API.
package main

import "os"

func main() {
	os.Exit(run(System{Args: os.Args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr, Exit: os.Exit}))
}
