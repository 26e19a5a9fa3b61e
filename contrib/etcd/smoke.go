package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// smoke runs three members, under load: reads at the leader, kill -9, the restart,
// a leader that is stopped for a while, and the gate turned off member by member. What it waits for has two minutes.
func smoke(ctx context.Context, dir, control string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	s := &stage{lease: filepath.Join(dir, "etcd-lease"), stock: filepath.Join(dir, "etcd-stock"), gates: gate + "=true"}
	if control == "gate-off" {
		s.gates = ""
	}
	home, err := os.MkdirTemp(dir, "smoke-")
	if err != nil {
		return err
	}
	if s.cluster, err = newCluster(home); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	for _, m := range s.members {
		if err := s.start(m, s.lease, s.gates); err != nil {
			return err
		}
	}
	if _, err := s.leader(ctx); err != nil {
		return err
	}
	s.load = startLoad(ctx, s.cluster, control == "serializable")
	for _, step := range []func(context.Context) error{s.read, s.fail, s.replay, s.freeze, s.freeze, s.freeze, s.turnOff} {
		if err = step(ctx); err != nil {
			break
		}
	}
	if err = errors.Join(err, s.load.stop()); err == nil {
		err = os.RemoveAll(home)
	}
	return err
}

// stage is a cluster of what was built.
type stage struct {
	*cluster
	load         *load
	lease, stock string // programs
	gates        string
	killed       *member
}

// read wants reads at the leader to be served by its lease.
func (s *stage) read(ctx context.Context) error {
	leader, err := s.leader(ctx)
	if err != nil {
		return err
	}
	return s.byLease(ctx, leader, "at the leader")
}

// byLease reads until 200 reads were served by the lease of m.
func (s *stage) byLease(ctx context.Context, m *member, when string) error {
	before, err := m.served(ctx, "lease")
	if err != nil {
		return err
	}
	reads, bySelf := 0, 0
	for deadline := time.Now().Add(20 * time.Second); bySelf < 200; {
		if _, err := m.get(ctx, false); err == nil {
			reads++
		}
		after, err := m.served(ctx, "lease")
		if err != nil {
			return err
		}
		if bySelf = after - before; time.Now().After(deadline) {
			return fmt.Errorf("%s: %d reads of %s were served by its lease in 20s, of %d asked here and more by the load", when, bySelf, m.name, reads)
		}
	}
	fmt.Printf("%s: %s has served %d reads by its lease, %d of them asked one by one\n", when, m.name, bySelf, reads)
	return nil
}

// fail kills the leader: reads go on at the next one.
func (s *stage) fail(ctx context.Context) error {
	old, err := s.leader(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := old.kill(); err != nil {
		return err
	}
	s.killed = old
	next, err := s.leader(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("kill -9 of %s: %s leads after %v\n", old.name, next.name, time.Since(began).Round(time.Millisecond))
	return s.byLease(ctx, next, "after kill -9")
}

// replay starts the killed member, whose log is replayed behind its backend, and
// makes it lead.
func (s *stage) replay(ctx context.Context) error {
	if err := s.start(s.killed, s.lease, s.gates); err != nil {
		return err
	}
	if err := s.moveTo(ctx, s.killed); err != nil {
		return err
	}
	return s.byLease(ctx, s.killed, "after its restart")
}

// moveTo makes m the leader.
func (s *stage) moveTo(ctx context.Context, m *member) error {
	for {
		leader, err := s.leader(ctx)
		if err != nil || leader == m {
			return err
		}
		_ = leader.ask(ctx, "maintenance/transfer-leadership", map[string]string{"targetID": m.id}, &struct{}{})
		if err := pause(ctx); err != nil {
			return fmt.Errorf("%s does not become leader: %w", m.name, err)
		}
	}
}

// freeze stops the leader, and asks it as soon as another has acknowledged a write:
// what it answers when it goes on must not be older.
func (s *stage) freeze(ctx context.Context) error {
	old, err := s.leader(ctx)
	if err != nil {
		return err
	}
	if err := old.process.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for seen := s.load.acked.Load(); s.load.acked.Load() < seen+3; {
		if err := pause(ctx); err != nil {
			return errors.Join(err, old.process.Process.Signal(syscall.SIGCONT))
		}
	}
	before := s.load.reads.Load()
	var asked sync.WaitGroup
	for range 50 {
		asked.Go(func() { _ = s.load.judge(ctx, old) })
	}
	if err := errors.Join(pause(ctx), old.process.Process.Signal(syscall.SIGCONT)); err != nil {
		return err
	}
	asked.Wait()
	fmt.Printf("%s was stopped while it led: %d reads judged, asked while it was and elsewhere\n", old.name, s.load.reads.Load()-before)
	next, err := s.leader(ctx)
	if err != nil {
		return err
	}
	return s.byLease(ctx, next, "after the stop")
}

// turnOff restarts each member without the gate, and the last one with stock etcd.
// Members with a lease go on reading while others have none.
func (s *stage) turnOff(ctx context.Context) error {
	for i, m := range s.members {
		promises := filepath.Join(s.data(m), "member", "lease-promise")
		if _, err := os.Stat(promises); err != nil {
			return err
		}
		if err := m.kill(); err != nil {
			return err
		}
		if err := s.start(m, s.lease, ""); err != nil {
			return err
		}
		for _, each := range s.members {
			if err := reads(ctx, each); err != nil {
				return fmt.Errorf("%d members without the gate: %w", i+1, err)
			}
		}
		if _, err := os.Stat(promises); err == nil {
			return fmt.Errorf("%s is still there", promises)
		}
	}
	m := s.members[0]
	if err := errors.Join(m.kill(), s.start(m, s.stock, "")); err != nil {
		return err
	}
	fmt.Println("turned off: promises are removed, and stock etcd runs on the same directory")
	return reads(ctx, m)
}

// reads waits until m serves a linearizable read.
func reads(ctx context.Context, m *member) error {
	for {
		_, err := m.get(ctx, false)
		if err == nil {
			return nil
		}
		if ended := pause(ctx); ended != nil {
			return fmt.Errorf("%w: %w", ended, err)
		}
	}
}
