//go:build !linux

package testcluster

import "syscall"

// attributes ask for nothing where it is not known what the system can do.
func attributes() *syscall.SysProcAttr { return nil }
