package settings

// noBinding is why the certificate of a peer is always looked at.
const noBinding = "a peer's certificate is what binds a connection to a member"

// securityTable is TLS, with etcd's names.
var securityTable = []setting{
	{
		name: "cert-file", topic: security, usage: "Certificate for clients, PEM; for URLs to listen on that are https.",
		field: func(c *Config) value { return filename(&c.Server.ClientTLS.CertFile) },
	},
	{
		name: "key-file", topic: security, usage: "Its key.",
		field: func(c *Config) value { return filename(&c.Server.ClientTLS.KeyFile) },
	},
	{
		name: "trusted-ca-file", topic: security, usage: "Authorities that sign clients' certificates. Each client needs one then.",
		field: func(c *Config) value { return filename(&c.Server.ClientTLS.TrustedCAFile) },
	},
	{
		name: "client-cert-auth", topic: security, usage: "Ask each client for a certificate; needs --trusted-ca-file, which does the same alone.",
		field: func(c *Config) value { return truth(&c.Server.ClientTLS.ClientCertAuth) },
	},
	{
		name: "client-crl-file", topic: security, usage: "Clients' certificates that were revoked.",
		field: func(c *Config) value { return filename(&c.Server.ClientTLS.CRLFile) },
	},
	{
		name: "client-cert-allowed-hostname", topic: security, usage: "Host names; clients' certificates must be valid for one of them.",
		field: func(c *Config) value { return list(&c.Server.ClientTLS.AllowedHostnames, "names") },
	},
	{
		name: "client-cert-file", topic: security,
		usage: "Certificate with which this member passes requests on to the leader. By default --cert-file.",
		field: func(c *Config) value { return filename(&c.Server.ClientTLS.ClientCertFile) },
	},
	{
		name: "client-key-file", topic: security, usage: "Its key.",
		field: func(c *Config) value { return filename(&c.Server.ClientTLS.ClientKeyFile) },
	},
	{
		name: "auto-tls", topic: security, usage: "Make a certificate for clients, which nobody has signed.",
		field: func(c *Config) value { return truth(&c.Server.ClientTLS.Auto) },
	},
	{
		name: "peer-cert-file", topic: security, usage: "Certificate for peers, PEM. It must be valid for the host of --initial-advertise-peer-urls.",
		field: func(c *Config) value { return filename(&c.Server.PeerTLS.CertFile) },
	},
	{
		name: "peer-key-file", topic: security, usage: "Its key.",
		field: func(c *Config) value { return filename(&c.Server.PeerTLS.KeyFile) },
	},
	{
		name: "peer-trusted-ca-file", topic: security, usage: "Authorities that sign peers' certificates.",
		field: func(c *Config) value { return filename(&c.Server.PeerTLS.TrustedCAFile) },
	},
	{
		name: "peer-client-cert-auth", topic: security, usage: "Ask each peer for a certificate; --peer-trusted-ca-file does so alone.",
		field: func(c *Config) value { return truth(&c.Server.PeerTLS.ClientCertAuth) },
	},
	{
		name: "peer-crl-file", topic: security, usage: "Peers' certificates that were revoked.",
		field: func(c *Config) value { return filename(&c.Server.PeerTLS.CRLFile) },
	},
	{
		name: "peer-cert-allowed-cn", topic: security, usage: "Common names; peers' certificates must have one of them.",
		field: func(c *Config) value { return list(&c.Server.PeerTLS.AllowedCNs, "names") },
	},
	{
		name: "peer-cert-allowed-hostname", topic: security, usage: "Host names; peers' certificates must be valid for one of them.",
		field: func(c *Config) value { return list(&c.Server.PeerTLS.AllowedHostnames, "names") },
	},
	{
		name: "peer-client-cert-file", topic: security, usage: "Certificate with which this member connects to peers. By default --peer-cert-file.",
		field: func(c *Config) value { return filename(&c.Server.PeerTLS.ClientCertFile) },
	},
	{
		name: "peer-client-key-file", topic: security, usage: "Its key.",
		field: func(c *Config) value { return filename(&c.Server.PeerTLS.ClientKeyFile) },
	},
	{
		name: "peer-auto-tls", topic: security, usage: "Make a certificate for peers, which nobody has signed: it hides what is said, and proves nothing.",
		field: func(c *Config) value { return truth(&c.Server.PeerTLS.Auto) },
	},
	{
		name: "self-signed-cert-validity", topic: security, usage: "Years for which --auto-tls and --peer-auto-tls make certificates.",
		field: func(c *Config) value { return number(&c.Server.SelfSignedYears, 1, 100) },
	},
	{
		name: "cipher-suites", topic: security, usage: "Cipher suites for TLS 1.2, with Go's names. By default Go's choice.",
		field: func(c *Config) value { return list(&c.Server.TLSCipherSuites, "names") },
	},
	{
		name: "tls-min-version", topic: security, usage: "Oldest version of TLS to speak.",
		field: func(c *Config) value { return oneOf(&c.Server.TLSMinVersion, "TLS1.2", "TLS1.3") },
	},
	{
		name: "tls-max-version", topic: security, usage: "Newest version of TLS to speak. By default the newest there is.",
		field: func(c *Config) value { return orNone(&c.Server.TLSMaxVersion, "TLS1.2", "TLS1.3") },
	},
	{
		name: "allow-plaintext", topic: security,
		usage: "Allow http URLs to listen on that are not on loopback.",
		field: func(c *Config) value { return truth(&c.Server.AllowPlaintext) },
	},
	{
		name: "host-whitelist", topic: security,
		usage: "Host names that requests over HTTP without TLS may be for, besides localhost and those in this member's URLs; * is all.",
		field: func(c *Config) value { return list(&c.Server.HostWhitelist, "names") },
	},
	{name: "peer-skip-client-san-verification", refused: noBinding, etcd: "false", bool: true},
}
