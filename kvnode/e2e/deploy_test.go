package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/leaderlease/go/internal/testcluster"
)

// expressions returns the PromQL expressions in deploy/ by place, and the sections of documents that
// the alerts link to.
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
	// selector matches a metric of kvnode with its matchers.
	selector = regexp.MustCompile(`\b((?:kvnode|leaderlease|etcd|grpc|process)_[a-z0-9_]+)(?:\{([^}]*)\})?`)
	// foreign matches recorded series and labels, which are not on a member's metrics page.
	foreign = regexp.MustCompile(`\w+:[\w:]+|\b(?:by|on|without) ?\([^)]*\)`)
	equal   = regexp.MustCompile(`(\w+)="([^"$]*)"`)
)

// missing returns the selectors of an expression without a match in the pages.
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

// failOver kills the leader, and restarts it once another member leads. If it were restarted at once, it
// could win the election, and no running member would have seen a fail-over.
func failOver(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	ctx := deadline(t)
	leader, err := c.Leader(ctx)
	must(t, err)
	must(t, leader.Kill())
	_, err = c.Leader(ctx)
	must(t, err)
	must(t, leader.Start())
}

// Each expression of the alerts and the dashboard finds its series on a cluster that has failed over
// once, and each alert links to an existing section.
func TestAlertsAndDashboardFindTheirSeries(t *testing.T) {
	c := startCluster(t, onlyKvnode(t))
	ctx := deadline(t)
	failOver(t, c)
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

// unanswered returns the expressions that find no series now, with the missing selectors.
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

// metricsOf returns the metrics pages of all members that answer.
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

// anchor returns the link target of a heading.
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

// alertTests are the test files for promtool.
var alertTests = []string{"kvnode.test.yaml", "kvnode.days.test.yaml"}

func alertTest(t *testing.T, name string) []byte {
	t.Helper()
	return read(t, filepath.Join("..", "..", "deploy", "prometheus", name))
}

// played is the part of promtool's test files that concerns alerts and recorded series.
type played struct {
	Tests []struct {
		Alerts []struct {
			Name  string `yaml:"alertname"`
			Fires []any  `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
		Recorded []struct{ Expr string } `yaml:"promql_expr_test"`
	}
}

// unplayed returns the rules without a complete test. An alert must fire in one test and not fire in
// another; a recorded series must have a value.
func unplayed(rules []string, all *played) (none []string) {
	fires, silent, recorded := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	for _, test := range all.Tests {
		for _, a := range test.Alerts {
			fires[a.Name] = fires[a.Name] || len(a.Fires) > 0
			silent[a.Name] = silent[a.Name] || len(a.Fires) == 0
		}
		for _, r := range test.Recorded {
			recorded[r.Expr] = true
		}
	}
	for _, name := range rules {
		if !recorded[name] && (!fires[name] || !silent[name]) {
			none = append(none, name)
		}
	}
	slices.Sort(none)
	return none
}

// Each shipped alert has a test in which it fires and one in which it does not, and each recorded series
// has a value in a test.
func TestEachAlertIsPlayed(t *testing.T) {
	var all played
	for _, name := range alertTests {
		var some played
		must(t, yaml.Unmarshal(alertTest(t, name), &some))
		all.Tests = append(all.Tests, some.Tests...)
	}
	var rules []string
	exprs, _ := expressions(t)
	for name := range exprs {
		if strings.HasPrefix(name, "Kvnode") || strings.Contains(name, ":") && !strings.Contains(name, " ") {
			rules = append(rules, name)
		}
	}
	if len(rules) < 25 {
		t.Fatalf("there are the rules %q, want those of deploy/", rules)
	}
	if none := unplayed(rules, &all); len(none) > 0 {
		t.Errorf("%q do not play %q", alertTests, none)
	}
	if none := unplayed([]string{"KvnodeNever", "a:b:c", "KvnodeNoLease"}, &all); !slices.Equal(none, []string{"KvnodeNever", "a:b:c"}) {
		t.Errorf("unplayed() = %q, want what nothing plays", none)
	}
}

// promtool accepts the rules, and rejects an alert with another threshold.
func TestAlertsByPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("there is no promtool on this machine (Debian: prometheus), by which alerts are played")
	}
	rules := read(t, "../../deploy/prometheus/kvnode.rules.yaml")
	broken := strings.Replace(string(rules), "kvnode_db_quota_bytes > 0.9", "kvnode_db_quota_bytes > 0.99", 1)
	if broken == string(rules) {
		t.Fatal("KvnodeQuotaLow has another threshold than it had")
	}
	for name, text := range map[string]string{"shipped": string(rules), "broken": broken} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "kvnode.rules.yaml"), []byte(text), 0o600))
		for _, name := range alertTests {
			must(t, os.WriteFile(filepath.Join(dir, name), alertTest(t, name), 0o600))
		}
		for _, args := range [][]string{{"check", "rules", "kvnode.rules.yaml"}, append([]string{"test", "rules"}, alertTests...)} {
			cmd := exec.CommandContext(deadline(t), promtool, args...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if bad := name == "broken" && args[0] == "test"; (err != nil) != bad {
				t.Errorf("promtool %q of the %s rules = %v: %s", args, name, err, out)
			}
		}
	}
}

// mixinModule contains etcd's own alerts and dashboard, in contrib/mixin. They are read from the
// module cache, and no copy is kept here.
const mixinModule = "go.etcd.io/etcd/v3@v3.7.1"

var (
	// alertExpr and panelExpr match the PromQL in the mixin's files. placeholder matches the job, the
	// cluster and the range, which the mixin leaves open.
	alertExpr   = regexp.MustCompile(`(?s)alert: '(\w+)',\s*expr: \|\|\|\n(.*?)\|\|\|`)
	panelExpr   = regexp.MustCompile(`(?s)(\w+):\s*prometheusQuery\.new\(\s*'\$' \+ variables\.datasource\.name,\s*'(.*?)' %`)
	placeholder = regexp.MustCompile(`%\(\w+\)s|%s`)
)

// mixin returns the expressions of etcd's alerts and dashboard, by name.
func mixin(t *testing.T) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", mixinModule).Output()
	var module struct{ Dir, Error string }
	if jerr := json.Unmarshal(out, &module); jerr != nil || module.Dir == "" {
		t.Fatalf("go mod download %s = %s, %v", mixinModule, out, err)
	}
	exprs := make(map[string]string)
	for file, re := range map[string]*regexp.Regexp{"alerts/alerts.libsonnet": alertExpr, "dashboards/targets.libsonnet": panelExpr} {
		text := read(t, filepath.Join(module.Dir, "contrib", "mixin", file))
		for _, match := range re.FindAllSubmatch(text, -1) {
			exprs[string(match[1])] += placeholder.ReplaceAllString(string(match[2]), "") + "\n"
		}
	}
	if len(exprs) < 25 {
		t.Fatalf("the mixin has the expressions %q, want some 30", slices.Sorted(maps.Keys(exprs)))
	}
	return exprs
}

// replaced returns the metrics of etcd that the pages list as missing in kvnode.
func replaced(t *testing.T) (names []string) {
	t.Helper()
	_, table, _ := strings.Cut(procedureText(t), "| of etcd's mixin |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)`").FindAllStringSubmatch(table, -1) {
		names = append(names, row[1])
	}
	return names
}

// Each expression of etcd's own alerts and dashboard finds its series on a cluster of kvnode,
// except for the metrics that the page lists.
func TestEtcdsMixinFindsItsSeries(t *testing.T) {
	c := startCluster(t, onlyKvnode(t), "--metrics=extensive")
	ctx, exprs, want := deadline(t), mixin(t), replaced(t)
	for {
		lacking := make(map[string]bool)
		for _, none := range unanswered(t, c, exprs) {
			for _, selector := range none {
				name, _, _ := strings.Cut(selector, "{")
				lacking[strings.TrimSuffix(name, "_bucket")] = true
			}
		}
		got := slices.Sorted(maps.Keys(lacking))
		if slices.Equal(got, want) {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("these find no series: %v, and %s says %v", fmt.Sprint(got), procedures, want)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
