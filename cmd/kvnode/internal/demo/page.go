package demo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/leaderlease/go/leaderlease/leasepage"
	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// pageOf is where a browser finds the page of leases that a member serves.
func pageOf(c *client) string { return "http://" + c.m.Endpoint + "/lease" }

// keepPage writes the page of all lease decisions to the directory of the run.
func (c *cluster) keepPage(out *printer) (err error) {
	var all []leasetrace.Process
	names := make(map[uint64]string)
	for _, m := range c.Members() {
		some, err := leasetrace.ReadFiles(c.trace(m))
		if err != nil {
			return err
		}
		for i := range some {
			names[some[i].Start.ID] = m.Name
		}
		all = append(all, some...)
	}
	path := filepath.Join(c.dir, "lease-page.html")
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("keep the page of leases: %w", err)
	}
	if err := errors.Join(leasepage.Write(f, leasepage.Draw(all, names)), f.Close()); err != nil {
		return fmt.Errorf("keep the page of leases: %w", err)
	}
	out.linef("The story as a page, for a browser: %s", path)
	return nil
}
