package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/leaderlease/go/internal/testcluster"
)

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

// sorted sorts lines, for what is listed by member ID.
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
