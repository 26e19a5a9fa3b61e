package settings

import (
	"testing"
)

func TestNearestWord(t *testing.T) {
	known := []string{"data-dir", "name", "serve", "status", "snapshot", "wal", "listen-client-urls", "listen-metrics-urls"}
	for given, want := range map[string]string{
		"":                   "",
		"stauts":             "status", // two letters swapped
		"STATUS":             "status",
		"sttus":              "status",
		"serv":               "serve",
		"walk":               "wal",
		"anme":               "name",
		"data-dirr":          "data-dir",
		"datadir":            "data-dir",
		"listen-client-url":  "listen-client-urls",
		"listen-clients-url": "listen-client-urls",
		"bogus":              "",
		"foo":                "",
		"x":                  "",
		"wallet":             "",
	} {
		if got := nearestWord(given, known); got != want {
			t.Errorf("nearestWord(%q) = %q, want %q", given, got, want)
		}
	}
}
