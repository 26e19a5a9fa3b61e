package e2e

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leaderlease/go/kvnode/e2e/internal/load"
)

// procedures is where operators find the commands that the drills perform.
const procedures = "../../docs/operations"

// functions is the file of shell functions that the procedures source.
const functions = "../../deploy/operations.sh"

// procedureText returns the pages of procedures, one after the other.
func procedureText(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, name := range []string{"install", "change", "repair", "migrate"} {
		text.Write(read(t, filepath.Join(procedures, name+".md")))
	}
	return text.String()
}

// marker is in front of a block of commands: <!-- drill:NAME -->.
var marker = regexp.MustCompile(`(?m)^<!-- drill:([a-z-]+) -->$`)

// blocks returns the commands of the page by the names of their markers, those with the
// same one in order.
func blocks(text string) (map[string][]string, error) {
	found := make(map[string][]string)
	for _, at := range marker.FindAllStringSubmatchIndex(text, -1) {
		name := text[at[2]:at[3]]
		rest, ok := strings.CutPrefix(text[at[1]:], "\n```sh\n")
		block, _, closed := strings.Cut(rest, "\n```\n")
		if !ok || !closed {
			return nil, fmt.Errorf("drill:%s has no block of sh behind it", name)
		}
		found[name] = append(found[name], block+"\n")
	}
	return found, nil
}

// commands returns the blocks with that name.
func commands(t *testing.T, name string) []string {
	t.Helper()
	all, err := blocks(procedureText(t))
	must(t, err)
	if len(all[name]) == 0 {
		t.Fatalf("%s has no commands with the marker drill:%s", procedures, name)
	}
	return all[name]
}

// unmarked returns the blocks of code that are not performed: they have no marker right before them,
// or are not shell.
func unmarked(text string) (none []string) {
	open, before := false, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if bare := strings.TrimLeft(line, " >"); strings.HasPrefix(bare, "```") || strings.HasPrefix(bare, "~~~") {
			if open = !open; open && (line != "```sh" || !marker.MatchString(before)) {
				none = append(none, before+"\n"+line)
			}
		}
		before = line
	}
	return none
}

// Every block of commands of the page is of a drill.
func TestDrillsAreThoseOfThePage(t *testing.T) {
	text := procedureText(t)
	all, err := blocks(text)
	must(t, err)
	want := []string{"variables", "setup", "first-start"}
	for _, d := range drills {
		want = append(want, d.blocks...)
	}
	for name := range all {
		if !slices.Contains(want, name) {
			t.Errorf("no drill performs drill:%s of %s", name, procedures)
		}
	}
	if n := strings.Count(text, "drill:"); n != len(marker.FindAllString(text, -1)) {
		t.Errorf("%s has %d words drill:, and %d markers: one is written in another way", procedures, n, len(marker.FindAllString(text, -1)))
	}
	if none := unmarked(text); len(none) > 0 {
		t.Errorf("%s has blocks that are not performed: %q", procedures, none)
	}
	all["functions"] = []string{string(read(t, functions))}
	if none := uncalled(all); len(none) > 0 {
		t.Errorf("%s has functions that nothing calls: %q", procedures, none)
	}
	planted := "a\n```sh\ntrue\n```\n<!-- drill:a -->\n```sh\ntrue\n```\n<!-- drill:b -->\n```bash\n```\n- list\n  ```\n  x\n  ```\n"
	if none := unmarked(planted); !slices.Equal(none, []string{"a\n```sh", "<!-- drill:b -->\n```bash", "- list\n  ```"}) {
		t.Errorf("unmarked() = %q, want the first and the last two of four", none)
	}
	if _, err := blocks("<!-- drill:a -->\n\n```sh\nx\n```\n"); err == nil {
		t.Error("a marker that is not next to its commands is not found out")
	}
}

// reading matches commands that change nothing.
var reading = regexp.MustCompile(`^(fetch|same_data|kvnode status|etcdctl \S+ (endpoint status|alarm list|member list))\b`)

// runsOn returns the commands that follow another one in a block, unless all of them only read. Assignments and
// definitions of functions are no commands here.
func runsOn(block string) (commands []string) {
	_, lines := numbered(block)
	for _, at := range slices.Sorted(maps.Keys(lines)) {
		line := lines[at]
		if !strings.HasPrefix(line, " ") && !defined.MatchString(line) && !setsFirst.MatchString(line) {
			commands = append(commands, line)
		}
	}
	if len(commands) < 2 || !slices.ContainsFunc(commands, func(line string) bool { return !reading.MatchString(line) }) {
		return nil
	}
	return commands[1:]
}

// A shell into which a block is pasted runs on after a command that failed. So the commands of a block are
// one list with &&: otherwise a restore that fails would be followed by the start of an empty cluster.
func TestBlocksStopAtTheFirstFailure(t *testing.T) {
	all, err := blocks(procedureText(t))
	must(t, err)
	for name, some := range all {
		if slices.Contains([]string{"variables", "setup", "mirror"}, name) { // a mirror runs in the background
			continue
		}
		for _, block := range some {
			if more := runsOn(block); more != nil {
				t.Errorf("drill:%s of %s goes on with these after a failure: %q", name, procedures, more)
			}
		}
	}
	for block, want := range map[string]int{"stop m1\nstart m1\n": 1, "M=1\nf() {\n  stop m1\n}\nf &&\n  start m1\n": 0, "fetch a\nkvnode status a\n": 0, "fetch a\nstop m1\nf\n": 2} {
		if got := runsOn(block); len(got) != want {
			t.Errorf("runsOn(%q) = %q, want %d", block, got, want)
		}
	}
}

// The block of variables that readers change sets the variables for which the drills have values,
// variables computed from those, and no others.
func TestThePageSetsWhatTheDrillsSet(t *testing.T) {
	values := maps.Clone(newMachines(t, onlyKvnode(t)).values)
	for line := range strings.Lines(commands(t, "variables")[0]) {
		for word := range strings.FieldsSeq(line) {
			name, value, ok := strings.Cut(word, "=")
			if _, ours := values[name]; !ok || !ours && !strings.Contains(value, "$") {
				t.Errorf("the page sets %s, which no drill has a value for", word)
			}
			delete(values, name)
		}
	}
	if len(values) > 0 {
		t.Errorf("the page does not set %v", values)
	}
}

// loops finds loops that wait.
var loops = regexp.MustCompile(`(?m)^.*\b(?:until|while) .*$`)

// Commands wait with wait_until only, which has a timeout and names its condition.
func TestWaitsOfThePageEnd(t *testing.T) {
	all, err := blocks(procedureText(t))
	must(t, err)
	all["functions"] = []string{string(read(t, functions))}
	for name, some := range all {
		for _, loop := range loops.FindAllString(strings.Join(some, ""), -1) {
			if loop != "  until out=$(\"$@\" 2>&1); do" && !strings.HasPrefix(loop, "#") {
				t.Errorf("drill:%s waits without an end: %s", name, loop)
			}
		}
	}
	m := newMachines(t, onlyKvnode(t))
	out, err := m.sh("set +x\nWAIT=1\ntry() { echo no wings >&2; false; }\nwait_until \"pigs fly\" try\n")
	if err == nil || !strings.Contains(out, "\nwaiting: pigs fly (no wings)\nno wings\ngave up after ") || !strings.HasSuffix(out, " s: pigs fly\n") {
		t.Errorf("wait_until(try) = %v: %s, want a failure that names what was awaited, and the error", err, out[max(0, len(out)-500):])
	}
}

// metricOfThePage is a metric that the page names, with its labels left out. Names with an ellipsis
// stand for several.
var metricOfThePage = regexp.MustCompile("`((?:kvnode|leaderlease|etcd|process)_[a-z0-9_]+)[`{]")

// tlsMetrics are on members with certificates.
const tlsMetrics = "kvnode_tls_"

// metricsIn returns the metrics that a text names, those of TLS or the others.
func metricsIn(text string, tls bool) (names []string) {
	for _, m := range metricOfThePage.FindAllStringSubmatch(text, -1) {
		if strings.HasPrefix(m[1], tlsMetrics) == tls {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// greppedOfThePage is what a command looks for in a page of metrics: beginnings of names, in
// parentheses those behind what they have in common.
var greppedOfThePage = regexp.MustCompile(`metrics" \| grep (?:-E )?'\^([a-z_]*)(?:\(([a-z_|]+)\))?'`)

// grepped returns the beginnings of metrics that a text looks for.
func grepped(text string) (all []string) {
	for _, m := range greppedOfThePage.FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(m[2], "|") {
			all = append(all, m[1]+name)
		}
	}
	return all
}

// nowhere returns the metrics that no page of metrics has.
func nowhere(names []string, pages string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return strings.Contains(pages, "# TYPE "+name+" ") })
}

// The metrics that the page names exist on members of a cluster that has failed over.
func TestMetricsOfThePageAreThere(t *testing.T) {
	c := startCluster(t, onlyKvnode(t))
	ctx := deadline(t)
	failOver(t, c)
	cl, err := c.Client()
	must(t, err)
	defer cl.Close()
	must(t, load.Retry(ctx, func(ctx context.Context) error { _, err := cl.Put(ctx, "k", "v"); return err }))
	not := replaced(t)
	names := slices.DeleteFunc(metricsIn(procedureText(t), false), func(name string) bool { return slices.Contains(not, name) })
	starts := grepped(procedureText(t))
	if len(names) < 50 || len(starts) < 14 {
		t.Errorf("%s names %d metrics, and looks for %d, want all that it had", procedures, len(names), len(starts))
	}
	for none := nowhere(names, metricsOf(t, c)); len(none) > 0; none = nowhere(names, metricsOf(t, c)) {
		if ctx.Err() != nil {
			t.Fatalf("%s names these, which no member has: %q", procedures, none)
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, start := range starts {
		if !strings.Contains(metricsOf(t, c), "# TYPE "+start) {
			t.Errorf("%s looks for %s, with which no metric begins", procedures, start)
		}
	}
	if got := nowhere(metricsIn("`kvnode_ready`, `kvnode_readyy`, `kvnode_tls_x` and `kvnode_alarm{type=\"x\"}`", false), "# TYPE kvnode_ready gauge\n"); !slices.Equal(got, []string{"kvnode_alarm", "kvnode_readyy"}) {
		t.Errorf("nowhere() = %q, want what no page has", got)
	}
}

var (
	// here matches the start of a here-document, goesOn a line that continues on the next one, and
	// inside a line that is no command by itself.
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

// unreached returns the lines that a run has not reported.
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
