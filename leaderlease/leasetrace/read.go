package leasetrace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// maxLine is more bytes than any line has.
const maxLine = 1 << 16

var errNotTrace = errors.New("this is not a trace: its first line must begin a process")

// ReadFiles reads the traces of a group, one or more files for each member, each with the
// older file that Record may have renamed. A file that is named twice is read once.
func ReadFiles(names ...string) (all []Process, err error) {
	for i, name := range names {
		if whole, older := strings.CutSuffix(name, olderSuffix); slices.Contains(names[:i], name) || older && slices.Contains(names, whole) {
			continue // read already, or read with its newer half
		}
		var one []Process
		for _, part := range []string{name + olderSuffix, name} {
			f, err := os.Open(part)
			if errors.Is(err, fs.ErrNotExist) && part != name {
				continue
			}
			if err != nil {
				return nil, err
			}
			one, err = read(f, one)
			if err = errors.Join(err, f.Close()); err != nil {
				return nil, fmt.Errorf("%s: %w", part, err)
			}
		}
		all = append(all, one...)
	}
	return all, nil
}

// Read reads one file of traces.
func Read(r io.Reader) ([]Process, error) { return read(r, nil) }

// read appends to the processes of earlier files.
func read(r io.Reader, all []Process) ([]Process, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	f := file{all: all}
	for n := 1; lines.Scan(); n++ {
		text := lines.Bytes()
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if err := f.take(text, n); err != nil {
			return nil, err
		}
	}
	switch err := lines.Err(); {
	case len(f.all) == 0 && err != nil:
		return nil, err
	case f.torn:
		return nil, errNotTrace
	case err != nil:
		f.all[len(f.all)-1].cut(err.Error())
	}
	return f.all, nil
}

// file is a file that is being read.
type file struct {
	all   []Process
	begun bool // its first process has begun
	torn  bool // its first line cannot be read, and none follows yet
}

// take adds a line that is not empty. The first line may be torn; then the next line must
// begin a process.
func (f *file) take(text []byte, number int) error {
	var l line
	err := json.Unmarshal(text, &l)
	switch {
	case len(f.all) == 0 && err != nil && !f.torn:
		f.torn = true
		return nil
	case len(f.all) == 0 && err != nil, !f.begun && err == nil && l.Trace == 0:
		return errNotTrace
	case err != nil || l.Trace == 0:
		f.all[len(f.all)-1].take(&l, number, err)
	default:
		if f.all, err = begin(f.all, &l, f.torn); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	f.begun, f.torn = true, false
	return nil
}

// begin adds the process that l begins, unless it continues the last process in another
// file. A torn line before l was the first line of another process of the same member.
func begin(all []Process, l *line, torn bool) ([]Process, error) {
	s, err := l.start()
	if err != nil {
		return nil, err
	}
	if torn {
		all = append(all, Process{Start: Start{ID: s.ID}, Cut: "its first line cannot be read"})
	}
	if n := len(all); n > 0 && all[n-1].Start == s && !all[n-1].Ended {
		return all, nil
	}
	return append(all, Process{Start: s}), nil
}

// take adds a line to its process. If the last line cannot be read, the process was killed
// while it wrote that line.
func (p *Process) take(l *line, number int, err error) {
	var e Event
	if err == nil && l.Kind != "" {
		e, err = l.event()
	}
	switch {
	case p.Cut != "":
	case p.torn != "":
		p.cut(p.torn)
	case err != nil:
		p.torn, p.Ended = fmt.Sprintf("line %d cannot be read: %v", number, err), false
	case p.Ended:
		p.cut(fmt.Sprintf("line %d follows the end", number))
	case l.Kind != "":
		p.Events = append(p.Events, e)
	case l.Lost != 0:
		p.cut(fmt.Sprintf("%d events are lost", l.Lost))
	case l.End == p.last():
		p.Ended = true
	default:
		p.cut(fmt.Sprintf("line %d ends it at event %d", number, l.End))
	}
}

func (p *Process) cut(why string) { p.Cut, p.Ended = why, false }
