package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// isFile reports whether an output of the log is a file, and not a stream of the
// process.
func isFile(output string) bool {
	return output != "default" && output != "stderr" && output != "stdout"
}

// OpenOutput opens a log file for appending.
func OpenOutput(name string) (*os.File, error) { return openOutput(name, os.O_CREATE) }

func openOutput(name string, flags int) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY|flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--log-outputs: %w", err)
	}
	return f, nil
}

// check reports which files cannot be logged to. It makes none of them.
func (l *Log) check() error {
	var errs []error
	for _, name := range l.Outputs {
		if isFile(name) {
			errs = append(errs, checkOutput(name))
		}
	}
	return errors.Join(errs...)
}

func checkOutput(name string) error {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return checkMissing(name)
	case err == nil && !info.Mode().IsRegular() && !info.IsDir():
		return nil // a pipe would wait for its reader
	}
	f, err := openOutput(name, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// checkMissing reports whether a file could be made, by making another one beside
// it: a member that starts meanwhile keeps its own.
func checkMissing(name string) error {
	place := name
	if target, err := os.Readlink(name); err == nil { // a link to what is missing
		if place = target; !filepath.IsAbs(place) {
			place = filepath.Join(filepath.Dir(name), place)
		}
	}
	f, err := os.CreateTemp(filepath.Dir(place), ".kvnode-check-*")
	if err != nil {
		if cause, ok := errors.AsType[*fs.PathError](err); ok {
			err = cause.Err // its path is that of the other file
		}
		return fmt.Errorf("--log-outputs: open %s: %w", name, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
