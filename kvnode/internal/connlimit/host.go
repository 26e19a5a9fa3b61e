package connlimit

import (
	"net"
	"net/netip"
)

// prefixBits is the part of an IPv6 address that one host has at least.
const prefixBits = 64

// hostOf returns the host of an address: an IPv4 address, the /64 prefix of an IPv6
// address, or the whole text of another kind of address.
func hostOf(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		host = addr.String()
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, prefixBits).Masked().String()
}
