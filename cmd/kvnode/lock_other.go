//go:build !linux

package main

import "syscall"

// untilWeEnd returns nil: only Linux kills a child when its parent dies.
func untilWeEnd() *syscall.SysProcAttr { return nil }
