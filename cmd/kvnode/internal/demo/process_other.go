//go:build !linux

package demo

import "syscall"

// childAttr asks for nothing where it is not known what the system can do.
func childAttr() *syscall.SysProcAttr { return nil }
