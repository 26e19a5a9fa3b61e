package arrivals

import (
	"net"
	"net/netip"
)

// Host returns the host of an address, host:port, in the spelling in which two are
// compared.
func Host(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().WithZone("").String()
	}
	return host
}

// prefixBits is what one owner of IPv6 addresses has at least.
const prefixBits = 64

// shared returns what all addresses of one owner have in common.
func shared(host string) string {
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Is4() {
		return host
	}
	prefix, err := ip.Prefix(prefixBits)
	if err != nil {
		return host
	}
	return prefix.String()
}
