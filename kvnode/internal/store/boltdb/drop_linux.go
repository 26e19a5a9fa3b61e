package boltdb

import (
	"syscall"

	"go.etcd.io/bbolt"
)

// drop removes the mapped pages of a database from the process's resident memory. They stay in the
// page cache. After a start has read all records, the whole file would otherwise be resident in
// addition to the loaded state.
func drop(tx *bbolt.Tx) {
	if at := tx.DB().Info().Data; at != 0 && tx.Size() > 0 {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, at, uintptr(tx.Size()), syscall.MADV_DONTNEED) // on failure they stay resident
	}
}
