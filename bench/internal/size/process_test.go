package size

import (
	"testing"
	"time"
)

const rollup = `5567ee63c000-7ffd4b8e1000 ---p 00000000 00:00 0                          [rollup]
Rss:               41000 kB
Pss:               39100 kB
Pss_Anon:          15872 kB
Shared_Clean:       1900 kB
Anonymous:         15000 kB
AnonHugePages:         0 kB
`

func TestMemoryIsReadByKind(t *testing.T) {
	m, err := parseMemory(rollup)
	if err != nil || m.Anonymous != 15000<<10 || m.File != 26000<<10 || m.RSS() != 41000<<10 {
		t.Errorf("parseMemory() = %+v, %v, want 15,000 KiB anonymous and 26,000 of files", m, err)
	}
	for _, bad := range []string{"", "Rss: 1 kB\n", "Rss: 1 kB\nAnonymous: many kB\n", "Anonymous: 1 kB\n"} {
		if m, err := parseMemory(bad); err == nil {
			t.Errorf("parseMemory(%q) = %+v, want an error", bad, m)
		}
	}
}

func TestProcessorTimeIsReadBehindANameOfAnyKind(t *testing.T) {
	const stat = "7 (a ) b) S 1 7 7 0 -1 4194560 9 0 0 0 123 45 8 9 20 0 12 0 100 1 2 3"
	if d, err := parseCPU(stat); err != nil || d != 1680*time.Millisecond {
		t.Errorf("parseCPU() = %v, %v, want 1.68 s", d, err)
	}
	for _, bad := range []string{"", "7 (a) S 1 2 3", "7 (a) S 1 7 7 0 -1 0 0 0 0 0 x 45 8"} {
		if d, err := parseCPU(bad); err == nil {
			t.Errorf("parseCPU(%q) = %v, want an error", bad, d)
		}
	}
}
