package main

const (
	webPkg = "./kvnode/server"
	cliPkg = "./cmd/kvnode/internal/cli"
)

// web are bugs of what a web page, a slow client or a greedy one is allowed, and
// of what people are shown.
var web = []Mutant{
	{
		Rule: "status", Name: "the term of a restart without an election is 0", Pkg: nodePkg, Test: "^TestTheTermOutlivesARestart$",
		File: "kvnode/start.go",
		Old:  "\tn.term.Store(hard.GetTerm())\n",
		New:  "\t_ = hard\n",
	},
	{
		Rule: "web", Name: "a web page that was rebound reads and writes", Pkg: webPkg, Test: "^TestAWebPageGetsNothing$",
		File: "kvnode/server/pages.go",
		Old:  "newPages(s.hosts.only(handler), s.log)",
		New:  "newPages(handler, s.log)",
	},
	{
		Rule: "web", Name: "hosts are checked only where data is", Pkg: webPkg, Test: "^TestAWebPageGetsNothing$",
		File: "kvnode/server/pages.go",
		Old:  "newPages(s.hosts.only(handler), s.log)",
		New:  "newPages(handler, s.log)",
		More: []Edit{{"kvnode/server/pages.go", "http.NewCrossOriginProtection().Handler(gateway)", "s.hosts.only(http.NewCrossOriginProtection().Handler(gateway))"}},
	},
	{
		Rule: "web", Name: "a page from elsewhere writes", Pkg: webPkg, Test: "^TestAWebPageGetsNothing$",
		File: "kvnode/server/pages.go",
		Old:  "http.NewCrossOriginProtection().Handler(gateway)",
		New:  "gateway",
	},
	{
		Rule: "web", Name: "a name that begins with an address is one", Pkg: webPkg, Test: "^TestHostsThatAreAnswered$",
		File: "kvnode/server/hosts.go",
		Old:  "\t_, err := netip.ParseAddr(name)\n",
		New:  "\t_, err := netip.ParseAddr(name[:min(len(name), len(\"127.0.0.1\"))])\n",
	},
	{
		Rule: "web", Name: "TLS without ALPN is taken for plain text", Pkg: webPkg, Test: "^TestAnyHostIsAnswered$",
		File: "kvnode/server/hosts.go",
		Old:  "\tif o, ok := c.(*overheard); ok {\n\t\tc = o.Conn\n\t}\n",
		New:  "",
	},
	{
		Rule: "names", Name: "a new member may have a name that terminals act upon", Pkg: nodePkg, Test: "^TestNamesOfNewMembers$",
		File: "kvnode/identity.go",
		Old:  "errors.Join(cfg.checkName(), cfg.makeEmpty())",
		New:  "cfg.makeEmpty()",
	},
	{
		Rule: "names", Name: "an old member with such a name does not start any more", Pkg: nodePkg, Test: "^TestNamesOfNewMembers$",
		File: "kvnode/datadir.go",
		Old:  "\tid, err := readIdentity(&c)\n",
		New:  "\tid, err := readIdentity(&c)\n\tif e := c.checkName(); e != nil {\n\t\treturn e\n\t}\n",
	},
	{
		Rule: "names", Name: "only what ASCII has is quoted", Pkg: nodePkg, Test: "^TestNamesAreShownAsTheyAre$",
		File: "kvnode/shown.go",
		Old:  "return !unicode.IsPrint(r)",
		New:  "return r < ' '",
		More: []Edit{{"kvnode/shown.go", "\t\"unicode\"\n", ""}},
	},
	{
		Rule: "names", Name: "the registry's names are shown as they are", Pkg: nodePkg, Test: "^TestOldNamesAreShownQuoted$",
		File: "kvnode/awaited.go",
		Old:  "\tname := Shown(m.Name)\n",
		New:  "\tname := m.Name\n",
	},
	{
		Rule: "names", Name: "the table of the status has what members say", Pkg: cliPkg, Test: "^TestStatusOfAStrangeMember$",
		File: "cmd/kvnode/internal/cli/table.go",
		Old:  "row[i] = oneLine(cell)",
		New:  "row[i] = cell",
	},
	{
		Rule: "names", Name: "JSON on a terminal has what members say", Pkg: cliPkg, Test: "^TestStatusOfAStrangeMember$",
		File: "cmd/kvnode/internal/cli/table.go",
		Old:  "printableJSON(string(data))",
		New:  "string(data)",
	},
	{
		Rule: "directory", Name: "nobody is told that others may write to the directory", Pkg: nodePkg, Test: "^TestADirectoryOfOthersIsWarnedOf$",
		File: "kvnode/start.go",
		Old:  "\tn.cfg.warnOfWriters()\n",
		New:  "",
	},
	{
		Rule: "directory", Name: "only what everybody may write to is warned of", Pkg: nodePkg, Test: "^TestWhoMayWrite$",
		File: "kvnode/datadir_unix.go",
		Old:  "perm&0o020 != 0",
		New:  "false",
	},
}
