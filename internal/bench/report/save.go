package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Save writes the report into a directory as name.txt, name.bench.txt and name.json,
// and returns the files' names.
func (r *Report) Save(dir, name string) (files []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("save the report: %w", err)
	}
	for _, f := range []struct {
		suffix string
		write  func(io.Writer) error
	}{
		{".json", r.WriteJSON}, {".txt", r.WriteText}, {".bench.txt", r.WriteBenchstat},
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

// WriteJSON writes everything, raw.
func (r *Report) WriteJSON(w io.Writer) error {
	return json.NewEncoder(w).Encode(r)
}

// Open reads what WriteJSON has written.
func Open(name string) (*Report, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("open report: %w", err)
	}
	r := &Report{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("open report %s: %w", name, err)
	}
	return r, nil
}
