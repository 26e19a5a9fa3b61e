package report

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Save writes the report into a directory as name.txt and name.bench.txt, and
// returns the files' names.
func (r *Report) Save(dir, name string) (files []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("save the report: %w", err)
	}
	for _, f := range []struct {
		suffix string
		write  func(io.Writer) error
	}{
		{".txt", r.WriteText}, {".bench.txt", r.WriteBenchstat},
	} {
		file := filepath.Join(dir, name+f.suffix)
		if err := save(file, f.write); err != nil {
			return files, fmt.Errorf("save %s: %w", file, err)
		}
		files = append(files, file)
	}
	return files, nil
}

func save(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
