package boltfence_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/leaderlease/go/leaderlease/fence"
	"github.com/leaderlease/go/leaderlease/fence/boltfence"
)

// The token and the write share one transaction; a late holder finds both as
// the newer holder left them.
func Example() {
	dir, err := os.MkdirTemp("", "boltfence")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := bbolt.Open(filepath.Join(dir, "data.db"), 0o600, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	gate, err := boltfence.New(db, "fence")
	if err != nil {
		log.Fatal(err)
	}

	setOwner := func(t fence.Token, owner string) error {
		return gate.Update("report", t, func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("reports"))
			if err != nil {
				return err
			}
			return b.Put([]byte("owner"), []byte(owner))
		})
	}
	fmt.Println(setOwner(fence.Token{Term: 5, Index: 133}, "node 2"))
	err = setOwner(fence.Token{Term: 4, Index: 120}, "node 1") // paused since term 4
	fmt.Println(err)
	fmt.Println(errors.Is(err, fence.ErrStale))

	// Output:
	// <nil>
	// boltfence: update "report": fence: stale token 4.120: 5.133 was admitted before
	// true
}
