//go:build !linux

package procs

import "syscall"

// dieWithParent does nothing where the system cannot.
func dieWithParent() *syscall.SysProcAttr { return nil }
