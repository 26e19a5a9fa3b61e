package kvnode

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/leaderlease/go/kvnode/restore"
	"github.com/leaderlease/go/raftwal"
)

// race runs f concurrently, and returns the errors.
func race(times int, f func(i int) error) (errs []error) {
	errs = make([]error, times)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errs
}

// One of several processes that start in an empty directory gets it, with the identity that it wrote.
// Otherwise the next start would be another instance, which the other members refuse.
func TestOneOfTwoFirstStartsGetsTheDirectory(t *testing.T) {
	for range 10 {
		cfg := aloneConfig(t)
		var nodes [4]*Node
		errs := race(len(nodes), func(i int) error {
			nodes[i] = newNode(cfg)
			err := openFiles(nodes[i])
			return err
		})
		on, err := readIdentity(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		winners := 0
		for i, err := range errs {
			switch {
			case err == nil:
				winners++
				if nodes[i].id.Instance != on.Instance {
					t.Errorf("the process that runs is instance %s, and its directory's is %s", nodes[i].id.Instance, on.Instance)
				}
			case !errors.Is(err, raftwal.ErrLocked):
				t.Errorf("openFiles() beside another = %v, want ErrLocked", err)
			}
		}
		if winners != 1 {
			t.Errorf("%d of %d first starts on one directory went on, want 1: %v", winners, len(nodes), errs)
		}
		for _, n := range nodes {
			if err := closeFiles(n); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// A restore that runs beside another restore, or beside a member's start, leaves their files alone.
func TestOneOfTwoRestoresGetsTheDirectory(t *testing.T) {
	file := saveSnapshot(t, startAlone(t))
	for range 5 {
		cfg := aloneConfig(t)
		cfg.SegmentSize = 64 << 10
		from := restore.Config{File: file, Name: cfg.Name, DataDir: cfg.DataDir, Cluster: cfg.Cluster, Token: cfg.Token, SegmentSize: 64 << 10}
		starting := newNode(cfg)
		errs := race(3, func(i int) error {
			if i == 0 {
				err := openFiles(starting)
				return err
			}
			_, err := restore.Snapshot(from)
			return err
		})
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			}
		}
		// The start may come after a restore, and use its directory.
		if won == 0 || won == 2 && errs[0] != nil || won > 2 {
			t.Errorf("of one start and two restores, %d succeeded: %v", won, errs)
		}
		if err := closeFiles(starting); err != nil {
			t.Error(err)
		}
		again := newNode(cfg)
		if err := openFiles(again); err != nil {
			t.Errorf("openFiles() of the directory afterwards = %v; the race ended in %v", err, errs)
		}
		if err := closeFiles(again); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			return
		}
	}
}

// A directory that is in use is refused, also before its log exists.
func TestADirectoryInUseIsRefused(t *testing.T) {
	cfg := aloneConfig(t)
	lock, err := cfg.dir().Lock()
	if err != nil {
		t.Fatal(err)
	}
	for name, check := range map[string]func() error{
		"openFiles":    func() error { return openFiles(newNode(cfg)) },
		"CheckDataDir": cfg.CheckDataDir,
		"restore.Snapshot": func() error {
			_, err := restore.Snapshot(restore.Config{File: saveSnapshot(t, startAlone(t)), Name: cfg.Name, DataDir: cfg.DataDir, Cluster: cfg.Cluster, SegmentSize: 64 << 10})
			return err
		},
	} {
		if err := check(); !errors.Is(err, raftwal.ErrLocked) {
			t.Errorf("%s() of a directory in use = %v, want ErrLocked", name, err)
		}
	}
	if _, err := readIdentity(&cfg); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory that was refused has an identity: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cfg.CheckDataDir(); err != nil {
		t.Errorf("CheckDataDir() of a directory with an unlocked lock file = %v", err)
	}
}
