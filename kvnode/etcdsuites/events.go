package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// event is a line of go tool test2json.
type event struct {
	Action string
	Test   string
	Output string
}

// heard is what a test's process said.
type heard struct {
	outcomes map[string]outcome // by name, without the suite
	output   strings.Builder
}

// listen reads the events of one process. A test that began and did not end,
// because of a panic or the time limit, has failed.
func listen(r io.Reader) (*heard, error) {
	h := &heard{outcomes: map[string]outcome{}}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return h, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read what a test says: %w", err)
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%q is no line of test2json: %w", line, err)
		}
		h.hear(e)
	}
}

func (h *heard) hear(e event) {
	h.output.WriteString(e.Output)
	if e.Test == "" {
		return
	}
	switch e.Action {
	case "run":
		h.outcomes[e.Test] = failed
	case "pass", "fail", "skip":
		h.outcomes[e.Test] = outcome(e.Action)
	}
}
