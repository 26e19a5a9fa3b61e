package procs

import (
	"bytes"
	"os"
	"strings"
)

// readyText is in the line that a server prints once it serves clients.
const readyText = "ready to serve client requests"

// logFile appends a process's output to a file and looks for readyText.
type logFile struct {
	// file is not embedded: its ReadFrom would pass Write by.
	file  *os.File
	ready chan struct{} // closed when readyText was seen

	// The goroutine that copies the output writes.
	tail []byte // an unfinished line
	seen bool
}

func openLog(name string) (*logFile, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &logFile{file: f, ready: make(chan struct{})}, nil
}

// Write implements io.Writer.
func (l *logFile) Write(p []byte) (int, error) {
	if !l.seen {
		l.tail = append(l.tail, p...)
		if bytes.Contains(l.tail, []byte(readyText)) {
			l.seen, l.tail = true, nil
			close(l.ready)
		}
		if i := bytes.LastIndexByte(l.tail, '\n'); i >= 0 {
			l.tail = append([]byte(nil), l.tail[i+1:]...)
		}
	}
	return l.file.Write(p)
}

// Close closes the file.
func (l *logFile) Close() error { return l.file.Close() }

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
