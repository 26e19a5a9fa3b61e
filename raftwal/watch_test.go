package raftwal

import (
	"sync/atomic"

	"github.com/leaderlease/go/raftwal/fs"
)

// watched is a directory that counts its open files, and can change what is
// read.
type watched struct {
	fs.FS
	files atomic.Int64
	// read is called with what was read.
	read func(name string, off int64, p []byte)
}

type watchedFile struct {
	fs.File
	name string
	dir  *watched
}

func (w *watched) watch(name string, f fs.File, err error) (fs.File, error) {
	if err != nil {
		return nil, err
	}
	w.files.Add(1)
	return &watchedFile{File: f, name: name, dir: w}, nil
}

func (w *watched) Create(name string) (fs.File, error) {
	f, err := w.FS.Create(name)
	return w.watch(name, f, err)
}

func (w *watched) Open(name string) (fs.File, error) {
	f, err := w.FS.Open(name)
	return w.watch(name, f, err)
}

func (w *watched) OpenRead(name string) (fs.File, error) {
	f, err := w.FS.OpenRead(name)
	return w.watch(name, f, err)
}

func (f *watchedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if f.dir.read != nil {
		f.dir.read(f.name, off, p[:n])
	}
	return n, err
}

func (f *watchedFile) Close() error {
	f.dir.files.Add(-1)
	return f.File.Close()
}
