package admission

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

func certificate(hosts ...string) Proof {
	leaf := &x509.Certificate{}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
			continue
		}
		leaf.DNSNames = append(leaf.DNSNames, host)
	}
	return Certified(leaf)
}

func claim(hosts ...string) Proof {
	var urls []string
	for _, host := range hosts {
		urls = append(urls, "http://"+net.JoinHostPort(host, "1"))
	}
	return Claimed(urls)
}

// members has member 1, registered; 2, registered, with a new URL in the configuration; 3,
// registered without a name, which is in AtCreation; 4, only there; 5, removed; and m6, only in the
// configuration.
func members() *Members {
	return &Members{
		Registry: &store.Members{
			ByID: map[uint64]store.Member{
				1: {ID: 1, Name: "m1", PeerURLs: []string{"https://n1:1", "https://10.0.0.1:1"}},
				2: {ID: 2, Name: "m2", PeerURLs: []string{"https://n2:1"}},
				3: {ID: 3, PeerURLs: []string{"https://[::3]:1"}},
			},
			Removed: map[uint64]bool{5: true},
		},
		AtCreation: []store.Member{{ID: 3, Name: "m3"}, {ID: 4, Name: "m4", PeerURLs: []string{"https://n4:1"}}, {ID: 5, Name: "m5", PeerURLs: []string{"https://n5:1"}}},
		Configured: []memberdir.Member{
			{Name: "m2", PeerURLs: []string{"https://n2b:1"}}, {Name: "m3", PeerURLs: []string{"https://n3b:1"}}, {Name: "m6", PeerURLs: []string{"https://n6:1"}},
		},
	}
}

func TestMayConnect(t *testing.T) {
	const accepted = ""
	for _, test := range []struct {
		name  string
		id    uint64
		proof Proof
		want  string
	}{
		{"a member's first host", 1, certificate("n1"), accepted},
		{"its second host", 1, certificate("n9", "10.0.0.1"), accepted},
		{"its host in capitals", 1, certificate("N1"), accepted},
		{"another member's host", 1, certificate("n2"), transport.ReasonCertificate},
		{"no member's host", 1, certificate("n9"), transport.ReasonCertificate},
		{"no host", 1, certificate(), transport.ReasonCertificate},
		{"the registered host of a member that has moved", 2, certificate("n2"), accepted},
		{"its configured host", 2, certificate("n2b"), accepted},
		{"the configured host of another member", 2, certificate("n3b"), transport.ReasonCertificate},
		{"its configured host, by its name in AtCreation", 3, certificate("n3b"), accepted},
		{"an IPv6 address", 3, certificate("::3"), accepted},
		{"an initial member that is not registered yet", 4, certificate("n4"), accepted},
		{"the same with another member's host", 4, certificate("n1"), transport.ReasonCertificate},
		{"a removed member", 5, certificate("n5"), transport.ReasonRemoved},
		{"a removed member at a registered host", 5, certificate("n1"), transport.ReasonRemoved},
		{"a removed member, accepted before", 5, Accepted(), transport.ReasonRemoved},
		{"an unknown ID at a registered host", 9, certificate("n1"), accepted},
		{"an unknown ID at an initial member's host", 9, certificate("n4"), accepted},
		{"an unknown ID at a member's configured host", 9, certificate("n2b"), accepted},
		{"an unknown ID at a host that is only configured", 9, certificate("n6"), accepted},
		{"an unknown ID at the host of a removed member", 9, certificate("n5"), transport.ReasonUnknown},
		{"an unknown ID elsewhere", 9, certificate("n9"), transport.ReasonUnknown},
		{"an unknown ID without a host", 9, certificate(), transport.ReasonUnknown},
		{"in plain text a registered ID", 1, claim("n9"), accepted},
		{"in plain text a removed one", 5, claim("n1"), transport.ReasonRemoved},
		{"in plain text an unknown ID at a registered host", 9, claim("n9", "n1"), accepted},
		{"in plain text an unknown ID elsewhere", 9, claim("n9"), transport.ReasonUnknown},
		{"in plain text an unknown ID nowhere", 9, Claimed([]string{""}), transport.ReasonUnknown},
	} {
		err := members().MayConnect(test.id, test.proof)
		refusal, refused := errors.AsType[*transport.Refusal](err)
		if refused != (test.want != accepted) || !refused && err != nil || refused && refusal.Reason != test.want {
			t.Errorf("%s: MayConnect(%d) = %v, want %q", test.name, test.id, err, test.want)
		}
		if refused && test.want != transport.ReasonRemoved && !strings.Contains(refusal.Text, "Config.Cluster") {
			t.Errorf("%s: the refusal is %q, want advice with Config.Cluster", test.name, refusal.Text)
		}
	}
}

// A refusal fits into a packet even if the certificate has 10,000 hosts.
func TestARefusalIsShort(t *testing.T) {
	var hosts []string
	for i := range 10_000 {
		hosts = append(hosts, fmt.Sprintf("host-%d.example", i))
	}
	for id := range uint64(2) {
		err := members().MayConnect(9*id+1*(1-id), certificate(hosts...))
		if err == nil || len(err.Error()) > 4<<10 || !strings.Contains(err.Error(), "and 9984 more") {
			t.Errorf("MayConnect() = %.100v..., of %d bytes, want a short refusal", err, len(fmt.Sprint(err)))
		}
	}
}

func TestRegisteredMembers(t *testing.T) {
	m := members()
	for id, want := range map[uint64]bool{1: true, 3: true, 4: true, 5: false, 6: false, 9: false} {
		if _, ok := m.Registered(id); ok != want {
			t.Errorf("Registered(%d) = %v, want %v", id, ok, want)
		}
	}
	var ids []uint64
	for _, member := range m.All() {
		ids = append(ids, member.ID)
	}
	if slices.Sort(ids); !slices.Equal(ids, []uint64{1, 2, 3, 4}) {
		t.Errorf("All() has %d, want 1 to 4", ids)
	}
	second := m.Registry.ByID[2]
	if got := m.URLs(&second); !slices.Equal(got, []string{"https://n2:1", "https://n2b:1"}) {
		t.Errorf("URLs() = %v, want the registered URL, then the configured one", got)
	}
}

func TestInstances(t *testing.T) {
	for _, test := range []struct {
		name, known, shown string
		refused            bool
	}{{"not known", "", "a", false}, {"the same", "a", "a", false}, {"another", "a", "b", true}, {"none", "a", "", true}} {
		err := CheckInstance(&transport.Hello{Instance: test.shown}, test.known)
		if refusal, refused := errors.AsType[*transport.Refusal](err); refused != test.refused || refused && refusal.Reason != transport.ReasonLostData {
			t.Errorf("%s: CheckInstance() = %v, want a refusal: %v", test.name, err, test.refused)
		}
	}
}
