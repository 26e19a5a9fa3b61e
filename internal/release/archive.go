package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is one file of an archive.
type file struct {
	name, path string
	mode       fs.FileMode
}

// filesOf returns the files below a directory of the repository that version control has, by their
// paths in it. Others may lie there, such as the binary of a container.
func filesOf(ctx context.Context, root, dir string) ([]file, error) {
	out, err := exec.CommandContext(ctx, "git", "-C", root, "ls-files", "-z", "--", dir).Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files %s: %w", dir, err)
	}
	var all []file
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		all = append(all, file{name: name, path: filepath.Join(root, filepath.FromSlash(name)), mode: 0o644})
	}
	return all, nil
}

// writeArchive writes a .tar.gz, or a .zip, and returns its path. All files are of one time, and
// nobody's.
func writeArchive(base string, zipped bool, files []file, at time.Time) (path string, err error) {
	path, write := base+".tar.gz", writeTar
	if zipped {
		path, write = base+".zip", writeZip
	}
	to, err := os.Create(path)
	if err != nil {
		return "", err
	}
	return path, errors.Join(write(to, files, at.UTC()), to.Close())
}

func writeTar(w io.Writer, files []file, at time.Time) error {
	packed := gzip.NewWriter(w)
	archive := tar.NewWriter(packed)
	for _, f := range files {
		err := f.copy(func(size int64) (io.Writer, error) {
			err := archive.WriteHeader(&tar.Header{Name: f.name, Mode: int64(f.mode), Size: size, ModTime: at, Format: tar.FormatPAX})
			return archive, err
		})
		if err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), packed.Close())
}

func writeZip(w io.Writer, files []file, at time.Time) error {
	archive := zip.NewWriter(w)
	for _, f := range files {
		err := f.copy(func(int64) (io.Writer, error) {
			header := &zip.FileHeader{Name: f.name, Modified: at, Method: zip.Deflate}
			header.SetMode(f.mode)
			return archive.CreateHeader(header)
		})
		if err != nil {
			return err
		}
	}
	return archive.Close()
}

// copy writes the file to where it belongs, given its size.
func (f file) copy(begin func(size int64) (io.Writer, error)) error {
	from, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := begin(info.Size())
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return err
}

// sumsName is what sha256sum --check takes.
const sumsName = "SHA256SUMS"

// writeSums writes the sums of files of dir, in the order of their names.
func writeSums(dir string, names []string) error {
	slices.Sort(names)
	var text strings.Builder
	for _, name := range names {
		sum, err := sumOf(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, name)
	}
	return os.WriteFile(filepath.Join(dir, sumsName), []byte(text.String()), 0o644)
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), err
}
