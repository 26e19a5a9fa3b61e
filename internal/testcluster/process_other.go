//go:build !linux

package testcluster

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }

// childOf returns 0: supervisors run on Linux only.
func childOf(int) (int, error) { return 0, nil }
