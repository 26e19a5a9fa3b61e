package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/leaderlease/go/internal/testcluster"
)

// quiet is how long a script waits for a line.
const quiet = patience

// running is an etcdctl in the background.
type running struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // closed when it has ended

	mu struct {
		sync.Mutex
		out []byte // not read yet
	}
}

// Write collects what the process prints.
func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.out = append(r.mu.out, p...)
	return len(p), nil
}

// take returns n lines, without those of the client's log, or all if n < 0. It
// reports whether there were as many.
func (r *running) take(n int) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var taken strings.Builder
	rest := r.mu.out
	for n != 0 {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			break
		}
		if !bytes.HasPrefix(rest, []byte(`{"level"`)) {
			taken.Write(rest[:i+1])
			n--
		}
		rest = rest[i+1:]
	}
	if n > 0 {
		return taken.String() + string(rest), false
	}
	r.mu.out = rest
	return taken.String(), true
}

// begin starts etcdctl with the line of the input:
//
//	begin NAME [endpoints=(m1)]
//
// Further directives read what it prints, tell it lines and interrupt it.
func (s *ctlScript) begin(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	r := &running{cmd: exec.Command(s.ctl, s.args(s.endpoints(t, d), strings.Fields(d.Input))...), done: make(chan struct{})}
	r.cmd.Dir = s.dir
	r.cmd.Stdout, r.cmd.Stderr = r, r
	var err error
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		_ = r.cmd.Wait() // for its exit code
	}()
	s.running[name(t, d)] = r
	return "ok\n"
}

func (s *ctlScript) background(t *testing.T, d *datadriven.TestData) *running {
	t.Helper()
	r, ok := s.running[name(t, d)]
	if !ok {
		d.Fatalf(t, "nothing runs as %q", name(t, d))
	}
	return r
}

// tell writes the input to the standard input of one that runs:
//
//	tell NAME
func (s *ctlScript) tell(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	if _, err := io.WriteString(s.background(t, d).stdin, d.Input+"\n"); err != nil {
		t.Fatal(err)
	}
	return "ok\n"
}

// read waits until one that runs has printed so many more lines, or has ended:
//
//	read NAME lines=3
//	read NAME end
func (s *ctlScript) read(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	r := s.background(t, d)
	if d.HasArg("end") {
		return s.end(t, r)
	}
	arg, _ := d.Arg("lines")
	n, err := strconv.Atoi(strings.Join(arg.Vals, ""))
	if err != nil {
		d.Fatalf(t, "lines: %v", err)
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		text, ok := r.take(n)
		if ok {
			return s.names.normalise(text)
		}
		if time.Since(begin) > quiet {
			return s.names.normalise(text) + "(no more lines)\n"
		}
	}
}

// interrupt sends SIGINT to one that runs and waits for its end:
//
//	interrupt NAME
func (s *ctlScript) interrupt(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	r := s.background(t, d)
	_ = r.cmd.Process.Signal(syscall.SIGINT) // if it has ended, its exit code tells
	return s.end(t, r)
}

// end waits for the end of a process and returns what was not read.
func (s *ctlScript) end(t *testing.T, r *running) string {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(commandTimeout):
		return "(does not end)\n"
	}
	text, _ := r.take(-1)
	return s.names.normalise(text) + "(exit code " + strconv.Itoa(r.cmd.ProcessState.ExitCode()) + ")\n"
}

// stopAll ends what a script has left running.
func (s *ctlScript) stopAll(t *testing.T) {
	t.Helper()
	for _, r := range s.running {
		_ = r.cmd.Process.Kill() // it may have ended
		<-r.done
	}
}

// names replaces what differs from run to run by what does not: members'
// addresses and IDs by e1, p1 and $id1, hashes by H1 for the first, H2 for the
// next that differs, and so on.
// Lease and member IDs that etcdctl prints for the first time become x1, x2 and
// so on.
type names struct {
	vars  []string // $name, value, ...
	known []string // value, name, ...
	found int      // IDs
}

// learn asks the cluster for its members' IDs.
func (s *ctlScript) learn(t *testing.T) {
	t.Helper()
	ctx := deadline(t)
	n := &names{}
	for i, m := range s.c.Members() {
		status, err := m.WaitStatus(ctx)
		if err != nil {
			t.Fatal(err)
		}
		id, no := status.Header.GetMemberId(), i+1
		n.addMember(no, m)
		n.add(fmt.Sprintf("id%d", no), fmt.Sprintf("%x", id), strconv.FormatUint(id, 10))
		if i == 0 {
			cid := status.Header.GetClusterId()
			n.add("CLUSTER", fmt.Sprintf("%x", cid), strconv.FormatUint(cid, 10))
		}
	}
	s.names = n
}

// addMember names a member's addresses.
func (n *names) addMember(no int, m *testcluster.Member) {
	n.add(fmt.Sprintf("e%d", no), m.Endpoint)
	n.add(fmt.Sprintf("p%d", no), m.Peer)
}

// add names a value, of which the first form is what $name stands for.
func (n *names) add(name string, forms ...string) {
	n.vars = append(n.vars, "$"+name, forms[0])
	for _, form := range forms {
		n.known = append(n.known, form, name)
	}
}

// id finds IDs of leases and members.
var id = regexp.MustCompile(`\b[0-9a-f]{14,16}\b`)

// learnIDs names the IDs in a text, in their order.
func (n *names) learnIDs(text string) {
	for _, hex := range id.FindAllString(text, -1) {
		value, err := strconv.ParseUint(hex, 16, 64)
		if err != nil || slices.Contains(n.known, hex) {
			continue
		}
		n.found++
		n.add(fmt.Sprintf("x%d", n.found), hex, strconv.FormatUint(value, 10))
	}
}

// expand replaces $id1, $e1 and the like in an argument.
func (n *names) expand(arg string) string { return strings.NewReplacer(n.vars...).Replace(arg) }

// varying is what changes from run to run, or from server to server without
// anyone caring.
var varying = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`(?m)^\{"level".*\n`), ""}, // what the client logs
	{regexp.MustCompile(`took = [0-9.a-zµ]+`), "took = TIME"},
	{regexp.MustCompile(`"took":"[^"]+"`), `"took":"TIME"`},
	{regexp.MustCompile(`took [0-9.]+[a-zµ]+`), "took TIME"},
	{regexp.MustCompile(`\b\d+\.\d+\.\d+\b`), "VERSION"},
	{regexp.MustCompile(`"(raft_term|raftTerm|raftIndex|raftAppliedIndex|dbSize|dbSizeInUse|dbSizeQuota)":\d+`), `"$1":N`},
	{regexp.MustCompile(`\b(Member|cluster)  +`), "$1 "}, // before an ID with leading zeros
	{regexp.MustCompile(`remaining\(\d+s\)`), "remaining(TTL)"},
	{regexp.MustCompile(`"ttl":\d+`), `"ttl":TTL`},
	{regexp.MustCompile(`"(MemberID|RaftTerm)" : \w+`), `"$1" : N`},
	{regexp.MustCompile(`("[hH]eader":\{[^}]*"member_id":)id\d`), `${1}ID`},
}

// initialCluster finds the members that member add prints, ordered by their IDs.
var initialCluster = regexp.MustCompile(`(ETCD_INITIAL_CLUSTER=")([^"]*)`)

// hash finds the hashes in what endpoint hashkv prints.
var hash = regexp.MustCompile(`(?m)(^(?:http://)?e\d, |"hash":)(\d+)`)

// normalise replaces in what etcdctl printed.
func (n *names) normalise(text string) string {
	n.learnIDs(text)
	text = strings.NewReplacer(n.known...).Replace(text)
	text = initialCluster.ReplaceAllStringFunc(text, func(match string) string {
		part := initialCluster.FindStringSubmatch(match)
		return part[1] + strings.Join(slices.Sorted(strings.SplitSeq(part[2], ",")), ",")
	})
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.by)
	}
	var seen []string
	return hash.ReplaceAllStringFunc(text, func(match string) string {
		part := hash.FindStringSubmatch(match)
		i := slices.Index(seen, part[2])
		if i < 0 {
			i = len(seen)
			seen = append(seen, part[2])
		}
		return fmt.Sprintf("%sH%d", part[1], i+1)
	})
}

// sorted sorts lines, for output that is ordered by member ID.
func sorted(text string) string {
	return strings.Join(slices.Sorted(strings.Lines(text)), "")
}

// columns picks columns of a table by their titles, and leaves lines that are
// no table alone.
func columns(text string, titles []string) string {
	var out strings.Builder
	var picked []int
	for line := range strings.Lines(text) {
		line = strings.NewReplacer("│", "|", "┼", "+", "├", "+", "┌", "+", "└", "+").Replace(line)
		switch {
		case strings.HasPrefix(line, "+"):
			continue
		case !strings.HasPrefix(line, "|"):
			out.WriteString(line)
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if picked == nil {
			for _, title := range titles {
				picked = append(picked, slices.Index(cells, title))
			}
		}
		var row []string
		for _, i := range picked {
			if i < 0 || i >= len(cells) {
				row = append(row, "(none)")
				continue
			}
			row = append(row, cells[i])
		}
		out.WriteString(strings.Join(row, " | ") + "\n")
	}
	return out.String()
}
