package settings

import (
	"os"
	"strings"
	"testing"
)

// No flag of etcd 3.5 is unknown.
func TestFlagsOfEtcd35(t *testing.T) {
	data, err := os.ReadFile("testdata/etcd-3.5-flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(data)) {
		name := strings.TrimSpace(line)
		if strings.HasPrefix(name, "#") {
			continue
		}
		seen++
		if byName[name] == nil {
			t.Errorf("the table has no %s", name)
		}
	}
	if seen < 100 {
		t.Errorf("etcd 3.5 has %d flags, want 100 at least", seen)
	}
}

// The values of the v2 flags that scripts pass by habit are accepted. A value that turns the v2 API on is
// refused with the alternative.
func TestV2(t *testing.T) {
	for _, test := range []struct{ name, value, want string }{
		{"enable-v2", "false", ""},
		{"enable-v2", "true", "clients must speak v3"},
		{"proxy", "off", ""},
		{"proxy", "on", "as their endpoints"},
		{"proxy-read-timeout", "0", ""},
		{"proxy-read-timeout", "5", "as their endpoints"},
		{"experimental-enable-v2v3", "", ""},
		{"experimental-enable-v2v3", "/v2", "clients must speak v3"},
		{"v2-deprecation", "not-yet", "there is no v2 store"},
		{"discovery-fallback", "proxy", "there is no discovery service"},
		{"force-new-cluster", "true", "kvnode snapshot restore with --bump-revision and --mark-compacted on that directory"},
	} {
		for way, load := range ways {
			l, err := load(t, test.name, test.value)
			said := strings.Join(l.Warnings, "\n")
			if err != nil {
				said += err.Error()
			}
			if test.want != "" && !strings.Contains(said, test.want) || test.want == "" && err != nil {
				t.Errorf("%s %q by %s = %q, want %q", test.name, test.value, way, said, test.want)
			}
		}
	}
}
