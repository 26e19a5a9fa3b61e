package raftexample

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const document = "../../docs/embedding.md"

// The whole walk, from the document's own text to a leader that is killed.
func TestTheWalk(t *testing.T) {
	dir := walk(t)
	leased := filepath.Join(dir, "raftexample")
	if settings := run(t, dir, "go", "version", "-m", leased); !strings.Contains(settings, "-race=true") {
		t.Fatalf("the document builds with\n%s, want the race detector in it", settings)
	}
	t.Run("reads through three members", func(t *testing.T) { readThroughThree(t, leased) })
	t.Run("a slow store is waited for", func(t *testing.T) { readSlowStore(t, build(t, dir, slowStore)) })
	t.Run("a snapshot is waited for", func(t *testing.T) { readSnapshot(t, build(t, dir, snapshots)) })
	t.Run("without a majority nothing is read", func(t *testing.T) { refuseAlone(t, leased) })
	t.Run("its own tests", func(t *testing.T) { run(t, dir, "go", "test", "-race", ".") })
	t.Run("negative control: raftexample as it was", func(t *testing.T) {
		patch, err := filepath.Abs("lease.patch")
		if err != nil {
			t.Fatal(err)
		}
		run(t, dir, "git", "apply", "-R", patch)
		answerAlone(t, build(t, dir, nil))
	})
}

// walk does what the document says, and returns where the program is.
func walk(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	doc := strings.ReplaceAll(string(text), "\r\n", "\n")
	_, after, _ := strings.Cut(doc, "<!-- run:raftexample -->")
	commands := fenced(after, "sh")
	if len(commands) == 0 {
		t.Fatalf("%s has no commands with the marker run:raftexample", document)
	}
	t.Setenv("TMPDIR", t.TempDir()) // the test's end removes what the commands leave
	out := run(t, "../..", "sh", "-eu", "-c", commands[0]+"pwd\n")
	return strings.TrimSpace(out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:])
}

// run runs a program in dir and returns what it prints.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// fenced returns the code blocks of one language.
func fenced(doc, language string) (blocks []string) {
	for {
		_, after, found := strings.Cut(doc, "\n```"+language+"\n")
		if !found {
			return blocks
		}
		block, rest, _ := strings.Cut(after, "```")
		blocks = append(blocks, block)
		doc = rest
	}
}

// slowStore is what a test changes in the program, by file: the store takes its time.
var slowStore = map[string][]string{
	"kvstore.go": {
		"\t\"log\"\n", "\t\"log\"\n\t\"math/rand/v2\"\n\t\"time\"\n",
		"for _, data := range commit.data {\n", "for _, data := range commit.data {\n\t\t\ttime.Sleep(rand.N(200 * time.Millisecond))\n",
	},
}

// snapshots makes one after each batch, and the store slow to load them. The raft loop
// then waits for main to have made the store, which upstream's does not: a race that
// shows where a snapshot comes before any data.
var snapshots = map[string][]string{
	"main.go": {
		"getSnapshot := func() ([]byte, error) {", "made := make(chan struct{})\n\tgetSnapshot := func() ([]byte, error) { <-made;",
		"proposeC, commitC, errorC)\n", "proposeC, commitC, errorC)\n\tclose(made)\n",
	},
	"raft.go": {
		"defaultSnapshotCount uint64 = 10000", "defaultSnapshotCount uint64 = 0",
		"snapshotCatchUpEntriesN uint64 = 10000", "snapshotCatchUpEntriesN uint64 = 1",
	},
	"kvstore.go": {
		"\t\"log\"\n", "\t\"log\"\n\t\"time\"\n",
		"// signaled to load snapshot\n", "time.Sleep(time.Second)\n",
	},
}

// build builds the program in dir with some text replaced, and leaves the files as
// they were.
func build(t *testing.T, dir string, changes map[string][]string) string {
	t.Helper()
	before := make(map[string][]byte)
	defer func() {
		for name, text := range before {
			if err := os.WriteFile(name, text, 0o600); err != nil {
				t.Error(err)
			}
		}
	}()
	for file, replace := range changes {
		name := filepath.Join(dir, file)
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(replace); i += 2 {
			if n := strings.Count(string(text), replace[i]); n != 1 {
				t.Fatalf("%s has %q %d times, want once", file, replace[i], n)
			}
		}
		before[name] = text
		if err := os.WriteFile(name, []byte(strings.NewReplacer(replace...).Replace(string(text))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(t.TempDir(), "raftexample")
	run(t, dir, "go", "build", "-race", "-o", program)
	return program
}
