package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// etcdsSnapshot was saved by a real etcd 3.6.
const etcdsSnapshot = "../../kvnode/internal/etcdfile/testdata/3.6"

// snapshot status describes a snapshot of etcd with etcd's own hash. import and snapshot restore
// turn it into a member.
func TestImport(t *testing.T) {
	file := etcdsSnapshot + ".db"
	hashes, err := os.ReadFile(etcdsSnapshot + ".hashes")
	if err != nil {
		t.Fatal(err)
	}
	var hash uint32
	if _, err := fmt.Sscanf(string(hashes[bytes.LastIndex(hashes, []byte("\n19 ")):]), "\n19 %d", &hash); err != nil {
		t.Fatal(err)
	}
	said := fmt.Sprintf("is etcd's, of storage version 3.6.0: 7 keys in 16 versions, 2 TTL leases, which begin anew; etcdctl endpoint hashkv --rev 19 of that etcd is %d\n", hash)
	for _, test := range []struct{ args, out string }{
		{"snapshot status " + file, fmt.Sprintf("%x, 19, 7, 24608\n", hash)},
		{"snapshot verify " + file, fmt.Sprintf("whole, revision 19, 7 keys, hash %x\n", hash)},
		{"import " + file, "revision 19, in terms above 1000000002\n"},
		{"import --quota-backend-bytes -1 " + file, "revision 19, in terms above 1000000002\n"},
		{"snapshot restore " + file, "revision 19, in terms above 1000000002\n"},
		{"import --bump-revision 1000 --mark-compacted " + file, "revision 1019, in terms above 1000000002\n"},
	} {
		args := strings.Fields(test.args)
		if !strings.HasPrefix(test.args, "snapshot status") && !strings.HasPrefix(test.args, "snapshot verify") {
			args = append(args, "--data-dir", filepath.Join(t.TempDir(), "new"))
		}
		code, stdout, stderr := kvnode(args...)
		if code != exitOK || !strings.HasSuffix(stdout, test.out) || !strings.Contains(stderr, said) && args[1] != "verify" {
			t.Errorf("kvnode %s = %d %q %q, want %q and %q", test.args, code, stdout, stderr, test.out, said)
		}
	}
}

func TestImportRefusals(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	whole, err := os.ReadFile(etcdsSnapshot + ".db")
	if err != nil {
		t.Fatal(err)
	}
	bare := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(bare, whole[:len(whole)-32], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args string
		code int
		want string
	}{
		{"import", exitUsage, "kvnode import: missing FILE (usage: kvnode import FILE)"},
		{"import " + bare, exitFailed, "has no checksum at its end"},
		{"import " + bare, exitFailed, "it lacks what only the member's wal has"},
		{"import --quota-backend-bytes 20000 " + etcdsSnapshot + ".db", exitFailed, "must be below the quota, 20000"},
		{"imports " + bare, exitUsage, "import"},
	} {
		code, _, stderr := kvnode(append(strings.Fields(test.args), "--data-dir", dir)...)
		if code != test.code || !strings.Contains(stderr, test.want) {
			t.Errorf("kvnode %s = %d %s, want %d and %q", test.args, code, stderr, test.code, test.want)
		}
	}
	if code, _, stderr := kvnode("import", "--skip-hash-check", bare, "--data-dir", dir); code != exitOK || !strings.Contains(stderr, "WARNING: "+bare+" has no checksum: if it is the member/snap/db") {
		t.Errorf("kvnode import --skip-hash-check = %d %s, want a warning", code, stderr)
	}
}
