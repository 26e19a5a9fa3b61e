package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// mixinModule has etcd's own alerts and dashboard, in contrib/mixin. It is read from the
// module cache, and no part of it is kept here.
const mixinModule = "go.etcd.io/etcd/v3@v3.7.1"

var (
	// alertExpr and panelExpr are how the mixin's files have PromQL; placeholder is what they
	// leave open: the job, the cluster, how long.
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

// replaced returns the metrics that the pages say kvnode has not, of those that etcd has.
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
// but for the metrics that the page names.
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
