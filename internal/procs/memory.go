package procs

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
)

// PeakMemory returns the most that the process has had in memory so far, in
// bytes. Only Linux tells.
func (m *Member) PeakMemory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.run.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("peak memory of %s: %w", m.Name, err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var kib int64
		if n, _ := fmt.Sscanf(lines.Text(), "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("peak memory of %s: the system does not tell", m.Name)
}
