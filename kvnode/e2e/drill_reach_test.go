package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	// here begins a text that goes on until a line of that word; goesOn ends a line that the next
	// one belongs to; inside begins what is no command by itself.
	here   = regexp.MustCompile(`<<(\w+)`)
	goesOn = regexp.MustCompile(`(\\|\||&&)$`)
	inside = regexp.MustCompile(`^\s*(#|[})]|(done|fi|esac|then|else|do)\b|$)`)
	// reached is what numbered writes.
	reached = regexp.MustCompile(`(?m)^reached (\d+)$`)
	// defined is a function.
	defined = regexp.MustCompile(`(?m)^(\w+)\(\) `)
)

// numbered returns the script with a statement before each command that records that it is reached. The
// statements write to a file, since lines that run at the same time get mixed in a shell's output.
func numbered(script string) (text string, lines map[int]string) {
	var b strings.Builder
	lines = make(map[int]string)
	end, joined := "", false
	for i, line := range strings.SplitAfter(script, "\n") {
		bare := strings.TrimSuffix(line, "\n")
		if end == "" && !joined && !inside.MatchString(bare) {
			lines[i] = bare
			fmt.Fprintf(&b, "echo reached %d >&3; ", i)
		}
		b.WriteString(line)
		switch m := here.FindStringSubmatch(bare); {
		case end != "" && bare == end:
			end = ""
		case end == "" && m != nil:
			end = m[1]
		}
		joined = end == "" && goesOn.MatchString(bare)
	}
	return b.String(), lines
}

// unreached returns the lines that a run has not told of.
func unreached(lines map[int]string, out string) (none []string) {
	for _, m := range reached.FindAllStringSubmatch(out, -1) {
		if i, err := strconv.Atoi(m[1]); err == nil {
			delete(lines, i)
		}
	}
	for i, line := range lines {
		none = append(none, fmt.Sprintf("%d: %s", i, line))
	}
	slices.Sort(none)
	return none
}

// uncalled returns the functions of the blocks that nothing calls.
func uncalled(all map[string][]string) (none []string) {
	var text strings.Builder
	for _, some := range all {
		text.WriteString(strings.Join(some, ""))
	}
	for _, m := range defined.FindAllStringSubmatch(text.String(), -1) {
		calls := regexp.MustCompile(`\b`+m[1]+`\b[^(=]`).FindAllString(text.String(), -1)
		if len(calls) == 0 {
			none = append(none, m[1])
		}
	}
	return none
}

// A command that a drill skips is found out, as is one behind an early end.
func TestDrillReachesEachCommand(t *testing.T) {
	m := newMachines(t, onlyKvnode(t))
	for name, tc := range map[string]struct {
		script string
		want   []string
	}{
		"all":              {"f() {\n  echo \"$1\" |\n    cat\n}\nf a \\\n  b\ncat <<END\nno command\nEND\n# nor this\nuntil true; do sleep 1; done\n", nil},
		"never called":     {"f() {\n  echo\n}\ntrue\n", []string{"1:   echo"}},
		"an early end":     {"true\nexit 0\netcdctl get k\n", []string{"2: etcdctl get k"}},
		"a case apart":     {"if false; then\n  echo\nfi\n", []string{"1:   echo"}},
		"behind a pipe of": {"true |\n  cat\nexit\ntrue\n", []string{"3: true"}},
	} {
		script, lines := numbered(tc.script)
		out, err := m.sh(script)
		must(t, err)
		if none := unreached(lines, out); !slices.Equal(none, tc.want) {
			t.Errorf("%s: unreached() = %q, want %q: %s", name, none, tc.want, out)
		}
	}
	if none := uncalled(map[string][]string{"a": {"f() { true; }\ng() { f; }\n"}, "b": {"h() {\n}\nh\n"}}); !slices.Equal(none, []string{"g"}) {
		t.Errorf("uncalled() = %q, want g", none)
	}
}
