package boltdb

import (
	"errors"
	"fmt"
	"os"

	"github.com/leaderlease/go/kvnode/store"
)

// ReadCheckpoint is store.ReadCheckpoint of the snapshot in the file path.
func ReadCheckpoint(path string) (store.Checkpoint, error) {
	return read(path, "read", store.ReadCheckpoint)
}

// Inspect is store.Inspect of the snapshot in the file path. It changes nothing.
func Inspect(path string) (store.Summary, error) {
	return read(path, "inspect", store.Inspect)
}

// Refound is store.Refound of the snapshot in the file path. What is no snapshot is
// refused and left as it is.
func Refound(path string, r store.Refounding) (store.Checkpoint, error) {
	c, err := refound(path, r)
	if err != nil {
		return store.Checkpoint{}, fmt.Errorf("store: begin with snapshot %s: %w", path, err)
	}
	return c, nil
}

func refound(path string, r store.Refounding) (c store.Checkpoint, err error) {
	if _, err := os.Stat(path); err != nil {
		return c, err // opening would make it
	}
	b, err := Open(path)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return store.Refound(b, r)
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
