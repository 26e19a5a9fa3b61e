//go:build !linux

package cli

import "syscall"

// untilWeEnd is nothing: no other system ends a command with who has started it.
func untilWeEnd() *syscall.SysProcAttr { return nil }
