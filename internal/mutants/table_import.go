package main

const (
	etcdfilePkg = "./kvnode/etcdfile"
	etcdRecords = "kvnode/etcdfile/version.go"
	etcdMeta    = "kvnode/etcdfile/file.go"
	etcdRefusal = "kvnode/etcdfile/check.go"
	importGlue  = "kvnode/restoreetcd.go"
)

// imports are bugs of an import from etcd.
var imports = []Mutant{
	{
		Rule: "import", Name: "a deletion is a put of nothing", Pkg: nodePkg, Test: "^TestAnEtcdSnapshotIsRestored$",
		File: etcdRecords,
		Old:  "\tcase r.tombstone:\n", New: "\tcase r.tombstone && r.main == 0:\n",
		More: []Edit{{etcdRecords, "\tcase kv.GetModRevision() != r.main ||", "\tcase !r.tombstone && kv.GetModRevision() != r.main ||"}},
	},
	{
		Rule: "import", Name: "the note of a raised revision is a version", Pkg: etcdfilePkg, Test: "^TestVersions$",
		File: etcdRecords,
		Old:  "\t\treturn nil, nil\n", New: "\t\treturn kv, nil\n",
	},
	{
		Rule: "import", Name: "a record of another revision is taken", Pkg: etcdfilePkg, Test: "^TestDamage$",
		File: etcdRecords,
		Old:  "\tcase kv.GetModRevision() != r.main ||", New: "\tcase kv.GetModRevision() < 0 ||",
	},
	{
		Rule: "import", Name: "a revision that comes twice is taken", Pkg: etcdfilePkg, Test: "^TestDamage$",
		File: etcdRecords,
		Old:  "if err == nil && !r.after(last) {", New: "if err == nil && r.main < last.main {",
	},
	{
		Rule: "import", Name: "a field that is unknown is passed over", Pkg: etcdfilePkg, Test: "^TestAnUnknownFieldIsRefused$",
		File: etcdRecords,
		Old:  "\tcase len(kv.ProtoReflect().GetUnknown()) > 0:\n", New: "\tcase false:\n",
	},
	{
		Rule: "import", Name: "a compaction counts once it has ended", Pkg: etcdfilePkg, Test: "^TestMeta$",
		File: etcdMeta,
		Old:  "\t\tif i > 0 {\n", New: "\t\tif i > 1 {\n",
	},
	{
		Rule: "import", Name: "the newest revision is that of the newest record", Pkg: etcdfilePkg, Test: "^TestMeta$",
		File: etcdMeta,
		Old:  "\t\tf.Revision = max(f.Revision, rev.main)\n", New: "\t\tif i == 0 {\n\t\t\tf.Revision = max(f.Revision, rev.main)\n\t\t}\n",
	},
	{
		Rule: "import", Name: "a store of kvnode passes for etcd's", Pkg: etcdfilePkg, Test: "^TestForeign$",
		File: etcdMeta,
		Old:  " || meta.Get(formatKey) != nil {", New: " {",
	},
	{
		Rule: "import", Name: "users are passed over where authentication is off", Pkg: etcdfilePkg, Test: "^TestCheck$",
		File: etcdRefusal,
		Old:  "if !enabled && len(users)+len(roles) == 0 {", New: "if !enabled {",
	},
	{
		Rule: "import", Name: "a named pipe is waited for", Pkg: nodePkg, Test: "^TestANamedPipeIsNoSnapshot$",
		File: "kvnode/restoresnap_file.go",
		Old:  "\tcase !info.Mode().IsRegular():\n\t\treturn nil, 0,", New: "\tcase info == nil:\n\t\treturn nil, 0,",
	},
	{
		Rule: "import", Name: "what a restore has left is refused without advice", Pkg: nodePkg, Test: "^TestWhatARestoreHasLeftIsRefused$",
		File: "kvnode/memberdir/dir.go",
		Old:  "; if it is what is left of a restore or an import that was cut short, remove it and run that again\", d,", New: "\", d,",
	},
	{
		Rule: "import", Name: "a large file is measured by 32 bits", Pkg: nodePkg, Test: "^TestASnapshotMayBeLarge$",
		File: "kvnode/restoresnap_size.go",
		Old:  "size = max(size, int64(pages)*int64(page))", New: "size = max(size, int64(uint32(pages)*page))",
	},
	{
		Rule: "import", Name: "a summary reads again what was read", Pkg: etcdfilePkg, Test: "^TestAFileIsReadTwice$",
		File: "kvnode/etcdfile/hash.go",
		Old:  "\tif f.seen == nil {\n", New: "\tif true {\n",
	},
	{
		Rule: "import", Name: "alarms are passed over", Pkg: etcdfilePkg, Test: "^TestCheck$",
		File: etcdRefusal,
		Old:  "\tif len(all) == 0 {\n", New: "\tif all != nil || len(all) == 0 {\n",
	},
	{
		Rule: "import", Name: "a newer storage version is taken", Pkg: etcdfilePkg, Test: "^TestCheck$",
		File: etcdRefusal,
		Old:  "|| n > newestMinor {", New: "|| n > 9*newestMinor {",
	},
	{
		Rule: "import", Name: "TTL leases go on with what was left", Pkg: etcdfilePkg, Test: "^TestTTLLeases$",
		File: "kvnode/etcdfile/ttl.go",
		Old:  "\t\tcase ttlGranted:\n\t\t\tl.TTL = int64(x)\n", New: "\t\tcase ttlGranted, ttlRemaining:\n\t\t\tl.TTL = int64(x)\n",
	},
	{
		Rule: "import", Name: "etcd's hash has what is compacted", Pkg: etcdfilePkg, Test: "^TestHashKV",
		File: "kvnode/etcdfile/hash.go",
		Old:  "\tif r.main > h.at || stale || ", New: "\tif stale = false; r.main > h.at || stale || ",
	},
	{
		Rule: "import", Name: "what is refused is imported", Pkg: nodePkg, Test: "^TestRestoreRefusesOfEtcd$",
		File: importGlue,
		Old:  "if err := f.Check(); err != nil {", New: "if err := f.Check(); err != nil && quota < 0 {",
	},
	{
		Rule: "import", Name: "a file that changes while it is read is imported", Pkg: nodePkg, Test: "^TestAnEtcdFileThatChangesIsNotImported$",
		File: importGlue,
		Old:  "if err == nil && !bytes.Equal(sum, e.sum) {", New: "if err == nil && bytes.Equal(sum, nil) {",
	},
	{
		Rule: "import", Name: "a store that exceeds the quota is made", Pkg: nodePkg, Test: "^TestRestoreRefusesOfEtcd$",
		File: importGlue,
		Old:  "e.quota > 0 && size >= e.quota {", New: "e.quota > 1<<40 && size >= e.quota {",
	},
	{
		Rule: "import", Name: "the order within a revision is lost", Pkg: nodePkg, Test: "^TestAnEtcdSnapshotIsRestored$",
		File: "kvnode/store/import.go",
		Old:  "sub: sub, mod:", New: "sub: uint32(len(part.versions)), mod:",
	},
	{
		Rule: "import", Name: "an import that has failed is a checkpoint", Pkg: storePkg, Test: "^TestAnImportThatFailsLeavesNoCheckpoint$",
		File: "kvnode/store/import.go",
		Old:  "m := meta{Format: FormatFirst, Revision: 1,", New: "m := meta{Format: FormatFirst, Index: f.Index, Term: f.Term, Revision: 1,",
	},
}
