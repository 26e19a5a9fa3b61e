package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// progress writes a line for each part of a plan that takes total.
func progress(to io.Writer, total time.Duration) func(step string, behind time.Duration) {
	write := func(format string, args ...any) {
		_, _ = fmt.Fprintf(to, format+"\n", args...) // a run does not fail for its progress
	}
	write("plan: about %v", total.Round(time.Second))
	last := ""
	return func(step string, behind time.Duration) {
		if part, _, _ := strings.Cut(step, ","); part != last {
			last = part
			write("%3.0f%% %s", 100*float64(behind)/float64(max(total, 1)), part)
		}
	}
}
