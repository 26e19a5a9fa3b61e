package testcluster

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// attributes keep Ctrl-C from members, which Stop ends in order, and kill them when this process dies. The
// signal is SIGKILL, since a paused process handles no other.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// childOf returns the one child of a process, 0 if it has none.
func childOf(pid int) (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // no process, or one that has ended
		}
		// The name, in parentheses, may hold anything.
		_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
		var child, parent int
		var state string
		if _, err := fmt.Sscan(rest, &state, &parent); err != nil || parent != pid {
			continue
		}
		if _, err := fmt.Sscan(e.Name(), &child); err == nil {
			return child, nil
		}
	}
	return 0, nil
}
