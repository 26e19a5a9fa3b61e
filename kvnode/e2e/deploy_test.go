package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/leaderlease/go/internal/testcluster"
)

// expressions returns the PromQL of deploy/, by where it stands, and the sections of documents that
// its alerts name.
func expressions(t *testing.T) (exprs map[string]string, runbooks []string) {
	t.Helper()
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Record, Expr string
				Annotations         struct{ Runbook string }
			}
		}
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	must(t, yaml.Unmarshal(read(t, "../../deploy/prometheus/kvnode.rules.yaml"), &rules))
	must(t, json.Unmarshal(read(t, "../../deploy/grafana/kvnode.json"), &dashboard))
	exprs = make(map[string]string)
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			exprs[r.Alert+r.Record] = r.Expr
			if r.Alert != "" {
				runbooks = append(runbooks, r.Annotations.Runbook)
			}
		}
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			exprs[p.Title] += target.Expr + "\n"
		}
	}
	return exprs, runbooks
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return data
}

var (
	// selector is a metric of ours with its matchers.
	selector = regexp.MustCompile(`\b((?:kvnode|leaderlease|etcd|grpc|process)_[a-z0-9_]+)(?:\{([^}]*)\})?`)
	// foreign is what other rules have made, and labels: not of a member's page.
	foreign = regexp.MustCompile(`\w+:[\w:]+|\b(?:by|on|without) ?\([^)]*\)`)
	equal   = regexp.MustCompile(`(\w+)="([^"$]*)"`)
)

// missing returns the selectors of an expression that no line of the pages has.
func missing(expr, pages string) (none []string) {
	for _, s := range selector.FindAllStringSubmatch(foreign.ReplaceAllString(expr, ""), -1) {
		found := slices.ContainsFunc(strings.Split(pages, "\n"), func(line string) bool {
			rest, ok := strings.CutPrefix(line, s[1])
			if !ok || !strings.HasPrefix(rest, "{") && !strings.HasPrefix(rest, " ") {
				return false
			}
			for _, m := range equal.FindAllString(s[2], -1) {
				if !strings.Contains(rest, m) {
					return false
				}
			}
			return true
		})
		if !found {
			none = append(none, s[0])
		}
	}
	return none
}

// Each expression of the alerts and the dashboard finds its series on a cluster that has failed over
// once, and each alert names a section that is there.
func TestAlertsAndDashboardFindTheirSeries(t *testing.T) {
	c := startCluster(t, onlyKvnode(t))
	ctx := deadline(t)
	leader, err := c.Leader(ctx)
	must(t, err)
	must(t, leader.Kill())
	must(t, leader.Start())
	exprs, runbooks := expressions(t)
	if len(exprs) < 40 || len(runbooks) < 20 {
		t.Fatalf("there are %d expressions and %d sections, want what deploy/ has", len(exprs), len(runbooks))
	}
	for {
		none := unanswered(t, c, exprs)
		if len(none) == 0 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("these find no series: %v", none)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if got := missing(`rate(kvnode_ready{job="x"}[5m]) + kvnode_nothing + kvnode_has_leader`, "kvnode_ready{a=\"b\"} 1\nkvnode_has_leader 1\n"); !slices.Equal(got, []string{`kvnode_ready{job="x"}`, "kvnode_nothing"}) {
		t.Errorf("missing() = %q, want what no line has", got)
	}
	headings := make(map[string]bool)
	for _, runbook := range runbooks {
		file, section, _ := strings.Cut(runbook, "#")
		for line := range strings.Lines(string(read(t, "../../"+file))) {
			if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
				headings[file+"#"+anchor(title)] = true
			}
		}
		if !headings[runbook] {
			t.Errorf("an alert names %s (%s), which is none of %v", runbook, section, slices.Sorted(maps.Keys(headings)))
		}
	}
}

// unanswered returns the expressions that find no series now, with what is missing.
func unanswered(t *testing.T, c *testcluster.Cluster, exprs map[string]string) map[string][]string {
	t.Helper()
	pages := metricsOf(t, c)
	lacking := make(map[string][]string)
	for name, expr := range exprs {
		if none := missing(expr, pages); len(none) > 0 {
			lacking[name] = none
		}
	}
	return lacking
}

// metricsOf returns the pages of metrics of all members that answer.
func metricsOf(t *testing.T, c *testcluster.Cluster) string {
	t.Helper()
	var pages strings.Builder
	for _, m := range c.Members() {
		if code, body := page(t.Context(), m, "/metrics"); code == http.StatusOK {
			pages.Write(body)
		}
	}
	return pages.String()
}

// anchor is what a heading is called in a link.
func anchor(title string) string {
	kept := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		default:
			return -1
		}
	}, strings.ToLower(strings.TrimSpace(title)))
	return kept
}
