package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderlease/go/internal/testcluster"
)

func drillTimeouts(t *testing.T, m *machines) {
	m.found()
	before := m.pids()
	m.perform("timeouts")
	m.restartedSince(before)
	m.perform("timeouts") // a setting may be changed again
	out, err := m.sh("kvnode serve --config-file \"$CONF/m1.yaml\" --print-config\n")
	if err != nil || !strings.Contains(out, "election-timeout: 2000 ") {
		t.Errorf("--print-config = %s, %v, want an election timeout of 2000", out, err)
	}
}

// restartedSince fails the test unless each member has another process than in pids.
func (m *machines) restartedSince(pids []int) {
	m.t.Helper()
	for i, pid := range m.pids() {
		if pid == pids[i] {
			m.t.Errorf("m%d was not restarted", i+1)
		}
	}
}

// drillRestart has a leader that is not m2 transfer its leadership to m2.
func drillRestart(t *testing.T, m *machines) {
	m.found()
	leader, err := m.Leader(deadline(t))
	must(t, err)
	if leader.Name == "m2" {
		_, err := m.sh("etcdctl --endpoints=\"$ALL\" move-leader \"$(id_of m1 \"$ALL\")\"\n")
		must(t, err)
	}
	m.perform("leader")
	out, err := m.sh("fetch \"$M2/metrics\"\n")
	if led := regexp.MustCompile(`(?m)^kvnode_leader_fail_overs_total\{by="transfer"\} [1-9]`); err != nil || !led.MatchString(out) {
		t.Errorf("m2 does not say that leadership was transferred: %v", err)
	}
	before := m.pids()
	m.perform("restart")
	m.restartedSince(before)
}

// Settings for members that are far apart start, elect, serve, and hold a lease. That they do so where
// messages take their time is shown in kvnode/far_test.go.
func drillFar(t *testing.T, m *machines) {
	m.perform("far")
	m.found()
	a, _ := memberClients(t, m.Cluster)
	puts(t, a, "k", 10)
	for ctx := deadline(t); !m.somebodyHolds(ctx); {
		if ctx.Err() != nil {
			t.Fatal("no member holds the leader lease")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// somebodyHolds reports whether a member says that it holds the leader lease, for as long as the page
// says: 750 ms.
func (m *machines) somebodyHolds(ctx context.Context) bool {
	for _, one := range m.Members()[:3] {
		code, body := page(ctx, one, "/metrics")
		text := string(body)
		if code == http.StatusOK && strings.Contains(text, "\nleaderlease_held{group=\"kvnode\"} 1\n") && strings.Contains(text, "\nleaderlease_duration_seconds{group=\"kvnode\"} 0.75\n") {
			return true
		}
	}
	return false
}

func (m *machines) pids() (all []int) {
	for _, one := range m.Members()[:3] {
		all = append(all, one.PID())
	}
	return all
}

// drillUpgrade upgrades from this tree's build to the release, and back.
func drillUpgrade(t *testing.T, m *machines) {
	m.release()
	m.found()
	a, _ := memberClients(t, m.Cluster)
	puts(t, a, "k", 10)
	m.between = m.edited(strings.Join(commands(t, "unpack"), ""))
	m.perform("upgrade")
	m.runsRelease(true)
	m.perform("downgrade")
	m.runsRelease(false)
	if n, _ := count(t, a, "k"); n != 10 {
		t.Errorf("%d of 10 keys are there", n)
	}
}

// runsRelease expects all members to run the release, or none.
func (m *machines) runsRelease(want bool) {
	m.t.Helper()
	for _, one := range m.Members()[:3] {
		_, body := page(m.t.Context(), one, "/metrics")
		if got := strings.Contains(string(body), "kvnode_build_info{version=\""+releaseVersion+"\"} 1"); got != want {
			m.t.Errorf("%s runs %s: %v, want %v", one.Name, releaseVersion, got, want)
		}
	}
}

// drillRoutine overwrites one key many times. After compaction the store is small, in a small file.
func drillRoutine(t *testing.T, m *machines) {
	m.found()
	a, _ := memberClients(t, m.Cluster)
	var first int64
	for i := range 200 {
		h := putSurely(t, a, "k", fmt.Sprint(i, strings.Repeat("x", 20<<10)))
		if i == 0 {
			first = h.GetRevision()
		}
	}
	m.perform("routine")
	if _, err := a.Get(deadline(t), "k", clientv3.WithRev(first)); err == nil {
		t.Error("the first version is still there")
	}
	for _, one := range m.Members()[:3] {
		status, err := a.Status(deadline(t), one.Endpoint)
		must(t, err)
		if status.DbSize > 1<<20 {
			t.Errorf("%s has a store of %d bytes, want less than 1 MiB of the 4 that were written", one.Name, status.DbSize)
		}
	}
	out, err := m.sh("kvnode serve --config-file \"$CONF/m2.yaml\" --print-config\n")
	if err != nil || !strings.Contains(out, "auto-compaction-retention: 1h ") {
		t.Errorf("--print-config = %s, %v, want compactions", out, err)
	}
}

// drillChecks has m3 compare itself at its next start: its data differs by then.
func drillChecks(t *testing.T, m *machines) {
	m.found()
	a, _ := memberClients(t, m.Cluster)
	puts(t, a, "k", 10)
	m.perform("checks")
	one := m.member("m3")
	makeDiffer(deadline(t), t, a, one)
	if code, err := one.WaitExit(deadline(t)); err != nil || code <= 0 || !strings.Contains(one.Log(), "this member's data differs") {
		t.Errorf("m3, whose data differs, ends with code %d, %v, want a failure that says so", code, err)
	}
}

func drillReplace(t *testing.T, m *machines) {
	m.found()
	a, _ := memberClients(t, m.Cluster)
	puts(t, a, "k", 10)
	m.destroy("m3")
	m.perform("replace")
	must(t, m.member("m4").Use(func(c *clientv3.Client) error {
		if n, _ := count(t, c, "k"); n != 10 {
			t.Errorf("m4 has %d of 10 keys", n)
		}
		return nil
	}))
}

func drillAdd(t *testing.T, m *machines) {
	m.found()
	a, _ := memberClients(t, m.Cluster)
	puts(t, a, "k", 10)
	m.perform("add")
	members, err := a.MemberList(deadline(t))
	if err != nil || len(members.Members) != 4 || members.Members[3].GetIsLearner() {
		t.Fatalf("MemberList() = %v, %v, want four, and no learner", members, err)
	}
	m.perform("remove")
	if members, err = a.MemberList(deadline(t)); err != nil || len(members.Members) != 3 {
		t.Errorf("MemberList() = %v, %v, want three", members, err)
	}
}

func drillMoved(t *testing.T, m *machines) {
	m.found()
	a, _ := memberClients(t, m.Cluster)
	puts(t, a, "k", 10)
	m.perform("moved")
	again := commands(t, "moved")
	m.refuses(again[0], m.values["BACKUP"]+"/moved exists")
	m.refuses(again[1], m.values["DATA"]+"/m3 exists on the machine of m4")
	puts(t, a, "still", 1)
}

// The last entry of m3's store.db is another one than that of its log.
func drillDiffers(t *testing.T, m *machines) {
	m.common("corrupt-check-time: 1s\n")
	m.found()
	a, _ := memberClients(t, m.Cluster)
	ctx := deadline(t)
	id := makeDiffer(ctx, t, a, m.member("m3"))
	awaitCorrupt(ctx, t, a, id)
	m.perform("differs")
	puts(t, a, "after", 1)
}

// drillCertificates replaces the authority of a running cluster by another one.
func drillCertificates(t *testing.T, m *machines) {
	m.certify() // settings may be written again
	m.found()
	m.perform("certificates-try")
	if out, err := m.sh("curl -sS --cacert \"$TLS/ca.crt\" \"$M1/readyz\"\n"); err == nil {
		t.Errorf("a client without a certificate is answered %s", out)
	}
	out, err := m.sh("fetch \"$M1/metrics\"\n")
	names := metricsIn(procedureText(t), true)
	if none := nowhere(names, out); err != nil || len(names) == 0 || len(none) > 0 {
		t.Errorf("%s names %q; members with certificates lack %q, %v", procedures, names, none, err)
	}
	m.issue("second")
	m.refuses(commands(t, "certificates")[1], "the certificate of m1 is not installed")
	m.perform("certificates")
	if out, err := m.sh("ETCDCTL_CACERT=../authority/ca.crt fetch \"$M1/readyz\"\n"); err == nil {
		t.Errorf("a client that trusts the former authority alone is answered %s", out)
	}
}

// certify gives the members certificates, as the page does, and the test's clients the one for clients.
func (m *machines) certify() {
	m.t.Helper()
	if m.plain {
		m.urls("http")
		return
	}
	m.issue("authority")
	m.perform("certificates-use")
	cfg := clientTLS(m.t, m.path("tls"))
	for _, one := range m.Members() {
		one.TLS = cfg
	}
}

// issue makes an authority, and certificates that it signs, in a directory of its own.
func (m *machines) issue(dir string) {
	m.t.Helper()
	m.set("AUTHORITY", m.path(dir))
	m.perform("certificates-make")
}

// clientTLS returns what a client needs that has the certificates in a directory.
func clientTLS(t *testing.T, dir string) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key"))
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(read(t, filepath.Join(dir, "ca.crt")))
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
}

// startEtcd starts the etcd of the page, of one member, with certificates of an authority of its own.
func (m *machines) startEtcd(dir string) *testcluster.Cluster {
	m.t.Helper()
	c := newCluster(m.t, testcluster.Config{Program: program(m.t, etcd), Size: 1, Prefix: dir})
	one := c.Members()[0]
	url := "http://" + one.Endpoint
	if !m.plain {
		m.issue(dir)
		_, err := m.sh("issue m1 subjectAltName=IP:127.0.0.1 extendedKeyUsage=serverAuth,clientAuth\n")
		must(m.t, err)
		one.TLS = clientTLS(m.t, m.path(dir))
		url = "https://" + one.Endpoint
		one.Flags = append(one.Flags, "--listen-client-urls="+url, "--advertise-client-urls="+url, "--client-cert-auth",
			"--trusted-ca-file="+m.path(dir)+"/ca.crt", "--cert-file="+m.path(dir)+"/m1.crt", "--key-file="+m.path(dir)+"/m1.key")
	}
	must(m.t, c.Serve(deadline(m.t)))
	m.set("ETCD", url)
	m.set("ETCD_TLS", m.path(dir))
	return c
}
