package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// alertTests are files that promtool plays.
var alertTests = []string{"kvnode.test.yaml", "kvnode.days.test.yaml"}

func alertTest(t *testing.T, name string) []byte {
	t.Helper()
	return read(t, filepath.Join("..", "..", "deploy", "prometheus", name))
}

// played is what promtool plays of the alerts and the recorded series.
type played struct {
	Tests []struct {
		Alerts []struct {
			Name  string `yaml:"alertname"`
			Fires []any  `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
		Recorded []struct{ Expr string } `yaml:"promql_expr_test"`
	}
}

// unplayed returns the rules that no test plays: an alert has to fire in one, and to be silent in
// another, what is recorded has to have a value.
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

// Each alert that is shipped is seen to fire, and not to, and each recorded series has a value.
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

// promtool finds the rules good, and an alert with another threshold bad.
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
