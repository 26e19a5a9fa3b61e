package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/kvnode/e2e/internal/load"
)

// drill is a procedure of the page: blocks are the markers of its commands. Each runs with certificates
// for clients and peers. Plain drills also run without, since their commands differ then.
type drill struct {
	name   string
	blocks []string
	run    func(t *testing.T, m *machines)
	plain  bool
}

var drills = []drill{
	{"a cluster is installed and watched", []string{"build", "unpack", "install", "watch", "alert", "slow"}, drillInstall, true},
	{"a dead member is replaced", []string{"replace"}, drillReplace, false},
	{"a member is added and removed", []string{"add", "remove"}, drillAdd, false},
	{"a member moves", []string{"moved"}, drillMoved, false},
	{"a member's data differs", []string{"differs"}, drillDiffers, false},
	{"a majority is lost for good", []string{"majority-look", "majority"}, drillMajority, false},
	{"a backup is restored", []string{"backup", "backup-restore"}, drillBackup, false},
	{"a version is upgraded, and back", []string{"upgrade", "downgrade"}, drillUpgrade, false},
	{"the leader is moved, and members are restarted", []string{"leader", "restart"}, drillRestart, false},
	{"the election timeout is changed", []string{"timeouts"}, drillTimeouts, false},
	{"members are far apart", []string{"far"}, drillFar, false},
	{"versions and files are kept small", []string{"routine"}, drillRoutine, false},
	{"data is checked", []string{"checks"}, drillChecks, false},
	{"certificates are made and changed", []string{"certificates-make", "certificates-use", "certificates-try", "certificates"}, drillCertificates, false},
	{"an etcd is imported", []string{"import", "mirror"}, drillImport, true},
	{"a disk is full", []string{"disk-reserve", "disk"}, drillDisk, false},
	{"the store is full", []string{"nospace"}, drillNoSpace, false},
	{"an etcd is replaced", []string{"mirror"}, drillMigrate, true},
}

// The procedures for operators work as written, command by command.
func TestDrill(t *testing.T) {
	p := onlyKvnode(t)
	for _, d := range drills {
		for suffix, plain := range map[string]bool{"": false, "-without-TLS": true} {
			if plain && !d.plain {
				continue
			}
			t.Run(strings.ReplaceAll(d.name, " ", "-")+suffix, func(t *testing.T) {
				t.Parallel()
				m := newMachines(t, p)
				m.plain = plain
				d.run(t, m)
			})
		}
	}
}

// A command that fails ends the drill, wherever it is.
func TestDrillEndsAtTheFirstFailure(t *testing.T) {
	m := newMachines(t, onlyKvnode(t))
	for _, script := range []string{"false\ntrue", "write_config m1\ntrue", "on m9 true\ntrue", "on m1 false\ntrue", "scp -q a b\ntrue", "systemctl start kvnode@m9\ntrue", "systemctl mask kvnode@m1\ntrue", "systemctl is-active kvnode@m1\ntrue", "docker push kvnode\ntrue", "etcdctl get\ntrue", "echo $UNSET\ntrue"} {
		if out, err := m.sh(script + "\n"); err == nil {
			t.Errorf("sh(%q) = %s, want an error", script, out)
		}
	}
	if out, err := m.sh("true\n"); err != nil {
		t.Errorf("sh(true) = %v: %s", err, out)
	}
}

// refuses expects a block to fail for a reason that it prints.
func (m *machines) refuses(script, reason string) {
	m.t.Helper()
	if out, err := m.sh(script); err == nil || !strings.Contains(out, "\n"+reason) {
		m.t.Errorf("%q ends with %v: %s, want %q", script, err, out[max(0, len(out)-outputTail):], reason)
	}
}

// puts writes n keys and returns the last revision.
func puts(t *testing.T, c *clientv3.Client, prefix string, n int) (revision int64) {
	t.Helper()
	for i := range n {
		revision = putSurely(t, c, fmt.Sprint(prefix, i), "v").GetRevision()
	}
	return revision
}

// putSurely puts a key until that is acknowledged. The members of a drill have the page's settings, and
// replace a leader that a busy machine holds up for a second.
func putSurely(t *testing.T, c *clientv3.Client, key, value string) (h *pb.ResponseHeader) {
	t.Helper()
	must(t, load.Retry(deadline(t), func(ctx context.Context) error {
		resp, err := c.Put(ctx, key, value)
		if err == nil {
			h = resp.Header
		}
		return err
	}))
	return h
}

// count asks how many keys with the prefix there are.
func count(t *testing.T, c *clientv3.Client, prefix string) (int64, int64) {
	t.Helper()
	resp, err := c.Get(deadline(t), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	must(t, err)
	return resp.Count, resp.Header.GetRevision()
}

// destroy ends a member and takes its disk away.
func (m *machines) destroy(name string) {
	m.t.Helper()
	one := m.member(name)
	must(m.t, one.Kill())
	must(m.t, one.Wipe())
}

// Some of what was acknowledged is in a checkpoint, some in the log behind it.
func drillMajority(t *testing.T, m *machines) {
	m.found()
	a, _ := memberClients(t, m.Cluster)
	puts(t, a, "k", 10)
	_, err := m.sh("etcdctl --endpoints=\"$M1\" snapshot save \"$BACKUP/before.db\"\n") // makes a checkpoint
	must(t, err)
	last := puts(t, a, "late", 6)
	must(t, m.Kill()) // m1 has not written yet what it knew to be committed
	m.destroy("m2")
	m.destroy("m3")
	_, err = m.sh("systemctl start kvnode@m1\n")
	must(t, err)
	m.perform("majority-look")
	m.perform("majority")
	m.refuses(commands(t, "majority")[1], m.values["BACKUP"]+"/m1.old exists")
	if n, rev := count(t, a, "k"); n != 10 || rev <= last+1_000_000_000 {
		t.Errorf("%d of 10 keys at revision %d, want it raised above %d", n, rev, last)
	}
	if n, _ := count(t, a, "late"); n != 6 {
		t.Errorf("%d of the last 6 puts are lost", 6-n)
	}
}

func drillBackup(t *testing.T, m *machines) {
	m.found()
	a, _ := memberClients(t, m.Cluster)
	puts(t, a, "k", 10)
	m.perform("backup")
	last := puts(t, a, "late", 6)
	m.perform("backup-restore")
	if n, rev := count(t, a, "k"); n != 10 || rev <= last {
		t.Errorf("%d of 10 keys at revision %d, want it raised above %d", n, rev, last)
	}
	if n, _ := count(t, a, "late"); n != 0 {
		t.Errorf("%d of 6 puts that came after the backup are there", n)
	}
	m.refuses(commands(t, "backup-restore")[0], m.values["DATA"]+"/m1.old exists on the machine of m1")
	m.raisesAgain()
}

// raisesAgain checks that a restore of the restored cluster's backup, and then of the older one, would raise
// revision and term further each time.
func (m *machines) raisesAgain() {
	m.t.Helper()
	_, err := m.sh("etcdctl --endpoints=\"$M1\" snapshot save \"$BACKUP/again.db\"\n")
	must(m.t, err)
	for _, field := range []string{"revision", "raftTerm"} {
		var last int64
		for _, file := range []string{"again.db", "kv.db"} {
			out, err := m.sh("state=$(kvnode snapshot status \"$BACKUP/" + file + "\" -w json) && echo \"$state\" &&\n  echo \"up=$(up_to_now " + field + ")\"\n")
			must(m.t, err)
			number := func(before string) int64 {
				found := regexp.MustCompile(before + "([0-9]+)").FindStringSubmatch(out)
				if found == nil {
					m.t.Fatalf("no %s in %s", before, out)
				}
				n, err := strconv.ParseInt(found[1], 10, 64)
				must(m.t, err)
				return n
			}
			from, up := number(`"`+field+`":`), number("up=")
			if from+up < last || up < 1 {
				m.t.Errorf("a restore of %s raises %s %d by %d, want it at %d or above", file, field, from, up, last)
			}
			last = from + up
		}
	}
}

func drillImport(t *testing.T, m *machines) {
	m.certify()
	old := m.startEtcd("etcd")
	from, _ := memberClients(t, old)
	last := puts(t, from, "k", 10)
	m.perform("import")
	now, _ := memberClients(t, m.Cluster)
	if n, rev := count(t, now, "k"); n != 10 || rev != last+1 {
		t.Errorf("%d of 10 keys at revision %d, want %d", n, rev, last+1)
	}
	back := m.startEtcd("back")
	maps.Copy(m.values, map[string]string{"FROM": m.values["M1"], "FROM_TLS": m.path("tls"), "TO": m.values["ETCD"], "TO_TLS": m.path("back")})
	m.perform("mirror")
	to, _ := memberClients(t, back)
	if n, _ := count(t, to, ""); n != 10+1 {
		t.Errorf("etcd has %d of 11 keys that kvnode has", n)
	}
}

func drillNoSpace(t *testing.T, m *machines) {
	m.common("quota-backend-bytes: 2097152\n")
	m.found()
	a, _ := memberClients(t, m.Cluster)
	full := false
	for i := 0; !full; i++ {
		if i == 100 {
			t.Fatal("10 MiB were written with a quota of 2 MiB")
		}
		must(t, load.Retry(deadline(t), func(ctx context.Context) error {
			_, err := a.Put(ctx, fmt.Sprint("junk/", i), strings.Repeat("x", 100<<10))
			if full = errors.Is(err, rpctypes.ErrNoSpace); full {
				return nil
			}
			return err
		}))
	}
	m.perform("nospace")
}

// drillMigrate has clients write to the etcd while it is copied. They stop when the page says so.
func drillMigrate(t *testing.T, m *machines) {
	m.found()
	old, _ := memberClients(t, m.startEtcd("etcd"))
	maps.Copy(m.values, map[string]string{"FROM": m.values["ETCD"], "FROM_TLS": m.path("etcd"), "TO": m.values["M1"], "TO_TLS": m.path("tls")})
	puts(t, old, "before/", 100)
	a, _ := memberClients(t, m.Cluster)
	m.between = "until test -e ../stopped; do sleep 0.1; done\n"
	late := make(chan error, 1)
	ctx := deadline(t)
	go func() {
		var err error
		for i := 0; i < 100 && err == nil; i++ {
			_, err = old.Put(ctx, fmt.Sprint("late/", i), "v")
		}
		late <- errors.Join(err, os.WriteFile(m.path("stopped"), nil, 0o600))
	}()
	m.perform("mirror")
	must(t, <-late)
	for _, prefix := range []string{"before/", "late/"} {
		if n, _ := count(t, a, prefix); n != 100 {
			t.Errorf("%d of 100 keys %s are there", n, prefix)
		}
	}
}
