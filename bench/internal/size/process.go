package size

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Memory is the resident memory of a process, in bytes.
type Memory struct {
	// Anonymous is the memory of this process alone: heap, stacks, buffers.
	Anonymous int64
	// File is mapped files: the binary, and a mapped database. The system takes
	// it back when memory is short.
	File int64
}

// RSS is all of it.
func (m Memory) RSS() int64 { return m.Anonymous + m.File }

// MemoryOf reads the memory of a process. It needs Linux.
func MemoryOf(pid int) (Memory, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return Memory{}, fmt.Errorf("read the memory of process %d, which needs Linux: %w", pid, err)
	}
	return parseMemory(string(text))
}

func parseMemory(rollup string) (Memory, error) {
	rss, err := kilobytes(rollup, "Rss:")
	anonymous, err2 := kilobytes(rollup, "Anonymous:")
	if err := errors.Join(err, err2); err != nil {
		return Memory{}, err
	}
	return Memory{Anonymous: anonymous, File: rss - anonymous}, nil
}

// kilobytes returns the line that begins with key in bytes.
func kilobytes(rollup, key string) (int64, error) {
	for line := range strings.Lines(rollup) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == key {
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("smaps_rollup: %q: %w", strings.TrimSpace(line), err)
			}
			return kb << 10, nil
		}
	}
	return 0, fmt.Errorf("smaps_rollup has no line %s", key)
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
