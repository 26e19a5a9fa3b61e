package boltfence

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/leaderlease/go/leaderlease/fence"
)

// writerEnv makes the test binary write to the database it names until it is
// killed.
const writerEnv = "BOLTFENCE_TEST_WRITER"

func TestTokenSurvivesReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data.db")
	db, g := open(t, path)
	if err := g.Update("job", newer, put("job", "by node 2")); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	db, g = open(t, path)
	wantHighest(t, g, "job", newer)
	if err := g.Update("job", older, put("job", "late")); !errors.Is(err, fence.ErrStale) {
		t.Errorf("Update(%v) after a restart = %v, want ErrStale", older, err)
	}
	if err := g.Update("job", newer, nil); err != nil {
		t.Errorf("Update(%v) by the same holder after a restart = %v, want nil", newer, err)
	}
	if got := content(t, db, "job"); got != "by node 2" {
		t.Errorf("content = %q, want %q", got, "by node 2")
	}
}

// writeUntilKilled raises the token in each write, writes it into the data as
// well, and says so only when bbolt has committed.
func writeUntilKilled(path string) error {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	g, err := New(db, bucket)
	if err != nil {
		return err
	}
	next, err := g.Highest("job")
	if err != nil {
		return err
	}
	for {
		next = fence.Token{Term: next.Term + next.Index/10, Index: next.Index%10 + 1}
		if err := g.Update("job", next, put("job", next.String())); err != nil {
			return err
		}
		fmt.Println(next)
	}
}

// Killed at any moment, the process leaves a token no lower than the last one
// it acknowledged, and exactly the data that came with it.
func TestKilledProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data.db")
	var before fence.Token
	for round := range 5 {
		acknowledged := runAndKill(t, path, 1+7*round)
		if !before.Less(acknowledged) {
			t.Fatalf("round %d acknowledged %v, want more than %v of the round before", round, acknowledged, before)
		}
		db, g := open(t, path)
		highest, err := g.Highest("job")
		if err != nil || highest.Less(acknowledged) {
			t.Errorf("Highest() after a kill = %v, %v, want at least the acknowledged %v", highest, err, acknowledged)
		}
		if got := content(t, db, "job"); got != highest.String() {
			t.Errorf("content after a kill = %q, want the write that came with %v", got, highest)
		}
		before = highest
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// runAndKill returns the last token that the process acknowledged; it is killed
// in whatever it does after n of them.
func runAndKill(t *testing.T, path string, n int) fence.Token {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), writerEnv+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var last fence.Token
	lines := bufio.NewScanner(out)
	for i := 0; lines.Scan(); i++ {
		if last, err = fence.ParseToken(lines.Text()); err != nil {
			t.Errorf("line %d of the writer: %v", i, err)
		}
		if i == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Errorf("Kill() = %v", err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || lines.Err() != nil {
		t.Fatalf("the writer ended by itself: %v, %v", err, lines.Err())
	}
	return last
}

// TestMain is also the entry of the process that TestKilledProcess starts and
// kills.
func TestMain(m *testing.M) {
	if path := os.Getenv(writerEnv); path != "" {
		fmt.Fprintln(os.Stderr, writeUntilKilled(path))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
