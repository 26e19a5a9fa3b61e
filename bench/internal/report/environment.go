package report

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/leaderlease/go/leaderlease/clock"
)

// Environment says what ran where. It names no host and no directory.
type Environment struct {
	Date       time.Time
	Command    string
	Commit     string
	Go         string
	Kernel     string
	CPU        string
	CPUs       int
	MaxProcs   int
	Clock      string
	LeaseClock string
	// LoadBefore and LoadAfter are the system's load averages: what else ran.
	LoadBefore string
	LoadAfter  string
}

// Here describes this process and its machine.
func Here() Environment {
	return Environment{
		Date:       time.Now().UTC().Truncate(time.Second),
		Command:    command(os.Args),
		Commit:     commit(),
		Go:         runtime.Version(),
		Kernel:     runtime.GOOS + "/" + runtime.GOARCH + " " + firstLine("/proc/sys/kernel/osrelease"),
		CPU:        cpu(),
		CPUs:       runtime.NumCPU(),
		MaxProcs:   runtime.GOMAXPROCS(0),
		Clock:      firstLine("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
		LeaseClock: clock.Describe(clock.System()).Name,
		LoadBefore: loadAverage(),
	}
}

// Lines returns the environment as key and value, in order.
func (e *Environment) Lines() [][2]string {
	return [][2]string{
		{"date", e.Date.Format(time.RFC3339)},
		{"command", e.Command},
		{"commit", e.Commit},
		{"toolchain", e.Go},
		{"kernel", e.Kernel},
		{"machine", e.CPU},
		{"cpus", fmt.Sprintf("%d, GOMAXPROCS %d", e.CPUs, e.MaxProcs)},
		{"clock-source", e.Clock + ", lease clock " + e.LeaseClock},
		{"load-average", e.LoadBefore + " before, " + e.LoadAfter + " after"},
	}
}

// Finish notes what only the end of a run can tell.
func (e *Environment) Finish() { e.LoadAfter = loadAverage() }

func command(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return WithoutPaths(strings.Join(append([]string{filepath.Base(args[0])}, args[1:]...), " "))
}

// absolute finds paths from the root, alone or in a flag's value. It lets the
// addresses of URLs be, and relative paths: they say nothing about the machine.
var absolute = regexp.MustCompile(`(^|[\s=,:"'(])(/[^\s/=,:"')]+)*/([^\s/=,:"')]+)/?`)

// WithoutPaths returns text with the base names of absolute paths in place of
// them.
func WithoutPaths(text string) string { return absolute.ReplaceAllString(text, "$1$3") }

// commit is what the binary was built from; a binary of go run does not know.
func commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		revision, dirty := "", ""
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value[:min(len(s.Value), 12)]
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "-dirty"
			}
		}
		if revision != "" {
			return revision + dirty
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func firstLine(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

func loadAverage() string {
	fields := strings.Fields(firstLine("/proc/loadavg"))
	return strings.Join(fields[:min(len(fields), 3)], " ")
}

func cpu() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close() //nolint:errcheck // it was only read
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
