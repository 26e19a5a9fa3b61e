package boltdb

import (
	"syscall"

	"go.etcd.io/bbolt"
)

// drop takes the pages of a database out of the process's memory, which has them mapped; the
// system keeps them as it does those of any file. Who has read all records once, as a start does,
// would else have the whole file in its memory beside what it has made of it.
func drop(tx *bbolt.Tx) {
	if at := tx.DB().Info().Data; at != 0 && tx.Size() > 0 {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, at, uintptr(tx.Size()), syscall.MADV_DONTNEED) // or they stay
	}
}
