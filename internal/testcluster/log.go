package testcluster

import (
	"bytes"
	"io"
	"os"
	"strings"
)

// readyText is in the line that a server prints once it serves clients.
const readyText = "ready to serve client requests"

// openLog opens the member's log, and says where the output of a run begins.
func (m *Member) openLog() (f *os.File, begin int64, err error) {
	f, err = os.OpenFile(m.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, 0, err
	}
	begin, err = f.Seek(0, io.SeekEnd)
	return f, begin, err
}

// saysReady reports whether the log has readyText from begin on.
func (m *Member) saysReady(begin int64) bool {
	f, err := os.Open(m.LogFile)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.NewSectionReader(f, begin, 1<<62))
	return err == nil && bytes.Contains(text, []byte(readyText))
}

// What an error shows of a log.
const (
	tailLines = 12
	lineWidth = 250
)

// Log returns what all runs of the member have printed.
func (m *Member) Log() string {
	text, err := os.ReadFile(m.LogFile)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// LogTail returns the last lines that the member printed.
func (m *Member) LogTail() string {
	lines := strings.Split(strings.TrimSpace(m.Log()), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	for i, line := range lines {
		lines[i] = m.Name + ": " + line[:min(len(line), lineWidth)]
	}
	return strings.Join(lines, "\n")
}
