package e2e

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// names replaces what differs from run to run by what does not: members'
// addresses and IDs by e1, p1 and $id1, hashes by H1 for the first, H2 for the
// next that differs, and so on.
type names struct {
	vars  []string // $name, value, ...
	known *strings.Replacer
}

// learn asks the cluster for its members' IDs.
func (s *ctlScript) learn(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	n := &names{}
	var known []string
	for i, m := range s.c.Members() {
		status, err := m.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		id, no := status.Header.GetMemberId(), i+1
		n.vars = append(n.vars, fmt.Sprintf("$id%d", no), fmt.Sprintf("%x", id), fmt.Sprintf("$e%d", no), m.Endpoint)
		known = append(known,
			m.Endpoint, fmt.Sprintf("e%d", no), m.Peer, fmt.Sprintf("p%d", no),
			fmt.Sprintf("%x", id), fmt.Sprintf("id%d", no), strconv.FormatUint(id, 10), fmt.Sprintf("id%d", no))
		if i == 0 {
			cid := status.Header.GetClusterId()
			known = append(known, fmt.Sprintf("%x", cid), "CLUSTER", strconv.FormatUint(cid, 10), "CLUSTER")
		}
	}
	n.known = strings.NewReplacer(known...)
	s.names = n
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
	{regexp.MustCompile(`"(MemberID|RaftTerm)" : \w+`), `"$1" : N`},
	{regexp.MustCompile(`("header":\{[^}]*"member_id":)id\d`), `${1}ID`},
}

// hash finds the hashes in what endpoint hashkv prints.
var hash = regexp.MustCompile(`(?m)(^(?:http://)?e\d, |"hash":)(\d+)`)

// normalise replaces in what etcdctl printed.
func (n *names) normalise(text string) string {
	text = n.known.Replace(text)
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
