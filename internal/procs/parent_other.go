//go:build !linux

package procs

import "syscall"

// attributes ask for nothing where it is not known what the system can do.
func attributes() *syscall.SysProcAttr { return nil }
