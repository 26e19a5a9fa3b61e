package servers

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// MemoryOf returns the bytes of a process that are in memory. It needs Linux.
func MemoryOf(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d, which needs Linux: %w", pid, err)
	}
	return parseMemory(string(text))
}

func parseMemory(status string) (int64, error) {
	for line := range strings.Lines(status) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmRSS:" {
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("no line VmRSS in the status of the process")
}

// CPUOf returns the processor time that a process has taken. It needs Linux.
func CPUOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read the processor time of process %d, which needs Linux: %w", pid, err)
	}
	return parseCPU(string(text))
}

// statTick is the unit of times in /proc/PID/stat, the same on all Linux systems.
const statTick = 10 * time.Millisecond

// parseCPU adds user and system time, which are the 12th and 13th field after the
// name, which ends with the last parenthesis.
func parseCPU(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("stat %q has too few fields", stat)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * statTick, errors.Join(err, err2)
}
