package kvnode

import (
	"strings"
	"testing"
	"time"
)

func TestValidateReportsEverything(t *testing.T) {
	c := Config{
		Name: "n3", TickInterval: 100 * time.Millisecond, ElectionTimeout: 400 * time.Millisecond,
		MaxRequestBytes: 1 << 30, ReadMode: 9,
		Cluster: []Member{
			{Name: "n1", PeerURLs: []string{"http://a:1"}},
			{Name: "n1", PeerURLs: []string{"ftp://a:1"}},
			{Name: "", PeerURLs: []string{"http://a"}},
			{Name: "n2", PeerURLs: []string{"http://a:1"}},
			{Name: "n4", PeerURLs: []string{"http://a:1/x"}},
		},
	}.WithDefaults()
	err := c.Validate()
	if err == nil {
		t.Fatal("Validate() = nil, want errors")
	}
	for _, want := range []string{
		"no data directory", "no listener", "election timeout 400ms", "max request bytes 1073741824",
		"read mode 9", `"n1" is twice`, `scheme "ftp"`, "has no name", "must be scheme://host:port", `have the same peer URLs`, "must not have more than scheme, host and port",
		`member "n3" is not in the initial cluster`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Validate() does not say %q:\n%v", want, err)
		}
	}
}

func TestReadModes(t *testing.T) {
	for m := ReadAuto; m <= ReadSerializable; m++ {
		if got, err := ParseReadMode(m.String()); got != m || err != nil {
			t.Errorf("ParseReadMode(%q) = %v, %v, want %v", m.String(), got, err, m)
		}
	}
	if _, err := ParseReadMode("fast"); err == nil || !strings.Contains(err.Error(), `"fast"`) {
		t.Errorf("ParseReadMode(fast) = %v, want an error that names it", err)
	}
}
