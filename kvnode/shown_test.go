package kvnode

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// A new member has a name that can be shown; one that has another already keeps it.
func TestNamesOfNewMembers(t *testing.T) {
	named := func(name string) Config {
		cfg := aloneConfig(t)
		cfg.Name, cfg.Cluster[0].Name = name, name
		return cfg
	}
	for _, name := range []string{"\x1b]0;title\a", "a\nb", "a\u202eb", "a\xff", strings.Repeat("x", transport.MaxNameBytes+1)} {
		cfg := named(name)
		if err := cfg.CheckDataDir(); err == nil || !strings.Contains(err.Error(), Shown(name)+" (Config.Name)") {
			t.Errorf("CheckDataDir() for a new member called %q = %v, want it refused by its name", name, err)
		}
		if _, _, err := openIdentity(&cfg); err == nil {
			t.Errorf("a directory is made for a member called %q, want it refused", name)
		}
		if _, err := os.Stat(filepath.Join(cfg.DataDir, memberdir.IdentityFile)); err == nil {
			t.Errorf("a refused start with the name %q has left %s", name, memberdir.IdentityFile)
		}
		id := cfg.owner().Found() // by a version that did not ask
		id.Begin(cfg.owner(), "x")
		if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := cfg.dir().Write(&id); err != nil {
			t.Fatal(err)
		}
		if err := cfg.CheckDataDir(); err != nil && strings.Contains(err.Error(), "Config.Name") {
			t.Errorf("CheckDataDir() for an old member called %q = %v, want it kept", name, err)
		}
	}
	cfg := named(strings.Repeat("é", transport.MaxNameBytes/2))
	if err := cfg.CheckDataDir(); err != nil {
		t.Errorf("CheckDataDir() for a name of %d bytes = %v, want it taken", len(cfg.Name), err)
	}
}

// What an old member has called itself, in the registry or on the wire, does not
// reach the status's lists for people raw.
func TestOldNamesAreShownQuoted(t *testing.T) {
	m := &store.Member{ID: 1, Name: "\x1b[31m" + strings.Repeat("z", 60_000), PeerURLs: []string{"http://h:1\x1b[2J", strings.Repeat("u", 60_000)}}
	if got := describe(m); strings.ContainsRune(got, '\x1b') || len(got) > 4<<10 {
		t.Errorf("describe() of a strange member has %d bytes: %.100q, want it quoted and short", len(got), got)
	}
}
