package linz

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// pictureBudget bounds the second search, which remembers how far it came.
const pictureBudget = 10 * time.Second

// maxPictures bounds how many keys are drawn.
const maxPictures = 3

// WritePictures draws, for the first keys whose operations have no order, an
// HTML page with the longest orders found, and returns the files' names.
func (r *Report) WritePictures(dir string) ([]string, error) {
	var files []string
	for _, key := range slices.Sorted(maps.Keys(r.pictures)) {
		if len(files) == maxPictures {
			break
		}
		_, info := porcupine.CheckOperationsVerbose(model, r.pictures[key], pictureBudget)
		name := filepath.Join(dir, fmt.Sprintf("history-%s.html", plain(key)))
		if err := writePicture(name, info); err != nil {
			return files, fmt.Errorf("draw the history of key %q: %w", key, err)
		}
		files = append(files, name)
	}
	return files, nil
}

func writePicture(name string, info porcupine.LinearizationInfo) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	return porcupine.Visualize(model, info, f)
}

// plain makes a file name of a key.
func plain(key string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, key)
}
