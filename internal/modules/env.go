package modules

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Env returns an environment in which the go command sees what is packed in proxy as
// published, and the module cache that it fills with that. What that cache has already
// is not downloaded into another one.
func Env(ctx context.Context, proxy string) (env []string, cache string, err error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, "", err
	}
	cache, rest, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw -buildvcs=false", "GONOSUMDB=github.com/leaderlease",
		"GOPROXY=file://"+filepath.ToSlash(proxy)+",file://"+filepath.ToSlash(filepath.Join(cache, "cache", "download"))+","+rest), cache, nil
}

// Forget takes a version of a module out of a module cache.
func Forget(cache, path, version string) error {
	found, err := filepath.Glob(filepath.Join(cache, "cache", "download", path, "@v", version+".*"))
	for _, name := range append(found, filepath.Join(cache, path+"@"+version)) {
		err = errors.Join(err, os.RemoveAll(name))
	}
	return err
}
