package testcluster

import (
	"errors"
	"fmt"
	"os"
)

// Ward is the process that is the member itself: the child of the one that was started where that is a
// guardian (kvnode serve --guardian), and otherwise that one.
func (m *Member) Ward() (*os.Process, error) {
	r, err := m.running("find")
	if err != nil {
		return nil, err
	}
	if !m.Program.Guarded {
		return r.cmd.Process, nil
	}
	child, err := childOf(r.cmd.Process.Pid)
	if err == nil && child == 0 {
		err = errors.New("its guardian has no child")
	}
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", m.Name, err)
	}
	return os.FindProcess(child)
}
