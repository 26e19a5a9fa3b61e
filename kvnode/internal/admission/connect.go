package admission

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"github.com/leaderlease/go/kvnode/internal/memberdir"
	"github.com/leaderlease/go/kvnode/internal/peerurl"
	"github.com/leaderlease/go/kvnode/internal/store"
	"github.com/leaderlease/go/kvnode/internal/transport"
)

// # Which peer may connect
//
// The peer certificate authority decides, as in etcd. With peer certificates:
//
//  1. The TLS handshake accepts a certificate that the peer authority has signed, that is valid now and not
//     revoked, and that has the usage clientAuth and, unless this member has a client certificate of its own,
//     serverAuth (tlsconf, Source.checkPeerUsages).
//  2. A registered ID is accepted if the certificate is valid for a host of its registered peer URLs, or of the URLs
//     that the initial cluster of this member has for that member's name.
//  3. An ID that is neither registered nor removed is accepted if the certificate is valid for a host of any
//     registered member, or of the initial cluster. The peer may be the leader that was added while this member was
//     away, and only the leader can tell this member so.
//  4. A removed ID is refused with ReasonRemoved.
//  5. An ID that is registered with an instance is refused with another one (ReasonLostData): that peer has lost its
//     data directory, and with it votes and promises.
//
// Without peer certificates any program can claim any ID and any host. Rule 2 then accepts each registered ID, and
// rule 3 compares the hosts of the peer URLs that the peer itself names.
//
// A peer that says that this member was removed or wiped makes it stop only if that peer is registered
// (membership.Routes.Believes).

// Members is what this member knows about the members of its cluster.
type Members struct {
	// Registry is the registry as far as it is applied.
	Registry *store.Members
	// AtCreation are the members as they were when this data directory was made. Each counts as registered until the
	// registry has it, or its removal.
	AtCreation []store.Member
	// Configured is the initial cluster of this member's configuration.
	Configured []memberdir.Member
}

// Proof is what a peer shows for its ID: a certificate, which is valid for some hosts, or else only the peer URLs
// that it names, with their hosts.
type Proof struct {
	Certificate bool
	ValidFor    func(host string) bool // not called with an empty host
	shown       string                 // for the text of a refusal
}

// Certified is the proof of a peer that shows the certificate leaf. The TLS handshake has verified it.
func Certified(leaf *x509.Certificate) Proof {
	names := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	return Proof{
		Certificate: true, ValidFor: func(host string) bool { return leaf.VerifyHostname(host) == nil },
		shown: "its certificate is valid for " + list(names),
	}
}

// Claimed is the proof of a peer without certificates.
func Claimed(peerURLs []string) Proof {
	hosts := peerurl.Hosts(peerURLs)
	return Proof{ValidFor: func(host string) bool { return slices.Contains(hosts, host) }, shown: "it names peer URLs on " + list(hosts)}
}

// Accepted is the proof of a peer that MayConnect has accepted on this connection before. With it, MayConnect refuses
// only a member that was removed since then.
func Accepted() Proof { return Proof{ValidFor: func(string) bool { return true }} }

// Registered returns a registered member.
func (m *Members) Registered(id uint64) (store.Member, bool) {
	if member, ok := m.Registry.ByID[id]; ok || m.Registry.Removed[id] {
		return member, ok
	}
	if i := slices.IndexFunc(m.AtCreation, func(m store.Member) bool { return m.ID == id }); i >= 0 {
		return m.AtCreation[i], true
	}
	return store.Member{}, false
}

// All returns the registered members, in no particular order.
func (m *Members) All() []store.Member {
	all := make([]store.Member, 0, len(m.Registry.ByID))
	for _, member := range m.Registry.ByID {
		all = append(all, member)
	}
	for _, first := range m.AtCreation {
		if _, ok := m.Registry.ByID[first.ID]; !ok && !m.Registry.Removed[first.ID] {
			all = append(all, first)
		}
	}
	return all
}

// URLs returns where to find a registered member: its registered peer URLs, then those that the initial cluster has
// for its name.
func (m *Members) URLs(member *store.Member) []string {
	urls := slices.Clone(member.PeerURLs)
	for _, c := range m.Configured {
		if c.Name != m.nameOf(member) {
			continue
		}
		for _, u := range c.PeerURLs {
			if !peerurl.AreAmong([]string{u}, urls) {
				urls = append(urls, u)
			}
		}
	}
	return urls
}

// nameOf returns the name of a member from the registry or, until the member has registered, from AtCreation.
func (m *Members) nameOf(member *store.Member) string {
	i := slices.IndexFunc(m.AtCreation, func(f store.Member) bool { return f.ID == member.ID })
	if member.Name == "" && i >= 0 {
		return m.AtCreation[i].Name
	}
	return member.Name
}

// MayConnect applies rules 2 to 4. It returns nil if the peer may connect.
func (m *Members) MayConnect(id uint64, p Proof) error {
	if m.Registry.Removed[id] {
		return refuse(transport.ReasonRemoved, "member %x was removed from the cluster", id)
	}
	member, registered := m.Registered(id)
	if registered {
		hosts := peerurl.Hosts(m.URLs(&member))
		if !p.Certificate || slices.ContainsFunc(hosts, p.ValidFor) {
			return nil
		}
		return refuse(transport.ReasonCertificate, "this is not known to be member %x: %s, and it must be valid for a host of the member's registered peer URLs, "+
			"or of Config.Cluster for its name: %s; if the member has moved, run member update, and start this member with Config.Cluster naming the new URLs",
			id, p.shown, list(hosts))
	}
	var hosts []string
	for _, member := range m.All() {
		hosts = append(hosts, peerurl.Hosts(m.URLs(&member))...)
	}
	for _, c := range m.Configured {
		hosts = append(hosts, peerurl.Hosts(c.PeerURLs)...)
	}
	if slices.ContainsFunc(hosts, p.ValidFor) {
		return nil
	}
	return refuse(transport.ReasonUnknown, "member %x is not registered here, and %s, none of which is a host of a registered member or of Config.Cluster (%s); "+
		"if members were replaced while this member was away, start it with Config.Cluster naming the present ones, or remove it and add it anew",
		id, p.shown, list(hosts))
}

// CheckInstance applies rule 5. known is the instance that the member is registered with, "" if it is not known.
func CheckInstance(h *transport.Hello, known string) error {
	if known == "" || known == h.Instance {
		return nil
	}
	return refuse(transport.ReasonLostData,
		"member %x (%q) has been in the cluster with another data directory; its votes and promises are lost, so remove it and add it anew", h.From, h.Name)
}

func refuse(reason, format string, args ...any) error {
	return &transport.Refusal{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

// list joins at most 16 items for a refusal. A certificate can name hundreds of hosts, and a packet has a limit.
func list(items []string) string {
	const most = 16
	slices.Sort(items)
	items = slices.Compact(items)
	if len(items) > most {
		items = append(items[:most:most], fmt.Sprintf("and %d more", len(items)-most))
	}
	return strings.Join(items, ", ")
}
