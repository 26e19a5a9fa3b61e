package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// inlineCode is a command in a sentence, and word a part of it that may name a command.
	inlineCode = regexp.MustCompile("`(kvnode [^`\n]*|--[^`\n]*)`")
	word       = regexp.MustCompile(`^[a-z]+$`)
	flagName   = regexp.MustCompile(`--[a-z][a-z0-9-]*`)
)

// helps holds the help texts by command line. Unknown commands have no entry.
type helps map[string]string

// of returns the help of the command that a line begins with.
func (h helps) of(line string) string {
	var args []string
	for _, w := range strings.Fields(line)[1:] {
		if !word.MatchString(w) {
			break
		}
		args = append(args, w)
	}
	name := strings.Join(args, " ")
	help, asked := h[name]
	if asked {
		return help
	}
	code, stdout, _ := kvnode(append(args, "--help")...)
	group := strings.Contains(stdout, "Available Commands:") && !strings.Contains(stdout, "\n  kvnode "+name)
	if code == exitOK && !group { // an unknown subcommand of a group shows the group's help
		help = stdout
	}
	h[name] = help
	return help
}

// unknownIn returns the unknown commands and flags that the sentences of a text name. A flag without a
// command may belong to any command, or to another program.
func (h helps) unknownIn(text string) (none []string) {
	var all strings.Builder
	all.WriteString("systemctl: --no-block; etcdctl make-mirror: --dest-cacert --dest-cert --dest-key --dest-insecure-transport")
	for _, command := range []string{"serve", "status", "demo", "snapshot save", "snapshot restore", "wal dump", "get", "lock"} {
		all.WriteString(h.of("kvnode " + command))
	}
	for _, m := range inlineCode.FindAllStringSubmatch(text, -1) {
		help := all.String()
		if strings.HasPrefix(m[1], "kvnode ") {
			help = h.of(m[1])
		}
		missing := help == ""
		for _, name := range flagName.FindAllString(m[1], -1) {
			missing = missing || !regexp.MustCompile(name+`([^a-z-]|$)`).MatchString(help)
		}
		if missing {
			none = append(none, m[1])
		}
	}
	return none
}

// Commands and flags that documents name in sentences exist. The tests of kvnode/e2e run the commands
// in blocks.
func TestDocumentsNameCommandsThatAreThere(t *testing.T) {
	h := make(helps)
	for _, name := range []string{"README.md", "docs/operations/install.md", "docs/operations/change.md", "docs/operations/repair.md", "docs/operations/migrate.md", "docs/kvnode.md", "docs/lease-traces.md", "docs/clocks.md"} {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		if none := h.unknownIn(string(text)); len(none) > 0 {
			t.Errorf("%s names %q", name, none)
		}
	}
	planted := "`kvnode wal verify DIR`, `kvnode wal prove DIR`, `kvnode status --watch`, `kvnode status --wach`, `--lease-page=false`, `--lease-pag`"
	if got, want := h.unknownIn(planted), []string{"kvnode wal prove DIR", "kvnode status --wach", "--lease-pag"}; !slices.Equal(got, want) {
		t.Errorf("unknownIn() = %q, want %q", got, want)
	}
}
