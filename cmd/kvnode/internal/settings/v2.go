package settings

// Reasons that the settings of etcd's v2 share.
const (
	noV2      = "etcd's v2 API is not there, as it is not in etcd 3.6: clients must speak v3 (ETCDCTL_API=3)"
	noV2Proxy = "there is no v2 proxy: let clients name the members as their endpoints, or put etcd grpc-proxy before them"
)

// v2Table is what etcd 3.5 had last. A configuration that has these at their defaults, as many
// scripts have, asks for nothing.
var v2Table = []setting{
	{name: "enable-v2", refused: noV2, etcd: "false", bool: true},
	{name: "enable-v2v3", refused: noV2},
	{name: "proxy", refused: noV2Proxy, etcd: "off"},
	{name: "proxy-failure-wait", ignored: noV2Proxy, etcd: "5000"},
	{name: "proxy-refresh-interval", ignored: noV2Proxy, etcd: "30000"},
	{name: "proxy-dial-timeout", ignored: noV2Proxy, etcd: "1000"},
	{name: "proxy-write-timeout", ignored: noV2Proxy, etcd: "5000"},
	{name: "proxy-read-timeout", ignored: noV2Proxy, etcd: "0"},
}
