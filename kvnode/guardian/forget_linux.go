package guardian

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// forget gives back the pages of the program that its start has read: 14 MB or so. They are the
// child's as well, and are read again from what it has of them in memory. What the loader has changed in them
// is no part of the file, and stays.
func forget() {
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return // only room is lost
	}
	var file mapping
	for line := range strings.Lines(string(maps)) {
		if m, ok := parseMapping(line); ok {
			file = m
		} else if file.untouchable && unchanged(line) {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, file.from, file.to-file.from, unix.MADV_DONTNEED)
		}
	}
}

// mapping is a part of this process's memory.
type mapping struct {
	from, to uintptr
	// untouchable: it is of a file, and cannot be written.
	untouchable bool
}

func parseMapping(line string) (m mapping, ok bool) {
	fields := strings.Fields(line) // from-to mode offset device inode file
	from, to, ok := strings.Cut(fields[0], "-")
	if !ok || len(fields) < 5 {
		return m, false
	}
	_, err := fmt.Sscanf(from+" "+to, "%x %x", &m.from, &m.to)
	m.untouchable = fields[4] != "0" && !strings.Contains(fields[1], "w")
	return m, err == nil
}

// unchanged reports whether a line says that no page of a mapping differs from its file.
func unchanged(line string) bool {
	fields := strings.Fields(line)
	return len(fields) == 3 && fields[0] == "Anonymous:" && fields[1] == "0"
}
