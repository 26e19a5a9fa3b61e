package boltdb

import (
	"errors"
	"fmt"
	"os"

	"github.com/leaderlease/go/kvnode/internal/store"
)

// ReadCheckpoint is store.ReadCheckpoint of the snapshot in the file path.
func ReadCheckpoint(path string) (store.Checkpoint, error) {
	return read(path, "read", store.ReadCheckpoint)
}

// Inspect is store.Inspect of the snapshot in the file path. It changes nothing.
func Inspect(path string) (store.Summary, error) {
	return read(path, "inspect", store.Inspect)
}

// Bootstrap is store.Bootstrap of the snapshot in the file path. It leaves a file that is not a
// snapshot as it is.
func Bootstrap(path string, n store.NewCluster) (store.Checkpoint, error) {
	c, err := bootstrap(path, n)
	if err != nil {
		return store.Checkpoint{}, fmt.Errorf("store: begin with snapshot %s: %w", path, err)
	}
	return c, nil
}

func bootstrap(path string, n store.NewCluster) (c store.Checkpoint, err error) {
	if _, err := os.Stat(path); err != nil {
		return c, err // opening would make it
	}
	b, err := Open(path)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return store.Bootstrap(b, n)
}

// read opens a file for fn, which verb names in errors.
func read[T any](path, verb string, fn func(store.Image) (T, error)) (T, error) {
	var got T
	img, err := openImage(path)
	if err == nil {
		got, err = fn(img)
		err = errors.Join(err, img.Close())
	}
	if err != nil {
		var none T
		return none, fmt.Errorf("store: %s snapshot %s: %w", verb, path, err)
	}
	return got, nil
}
