package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leaderlease/go/internal/bench/report"
)

func newReport(c *common) *cobra.Command {
	return &cobra.Command{
		Use: "report FILE.json...", Short: "print saved reports again, as one, and with --out write them", Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			all, err := report.Open(files[0])
			if err != nil {
				return err
			}
			for _, file := range files[1:] {
				other, err := report.Open(file)
				if err != nil {
					return err
				}
				all.Merge(other)
			}
			if err := all.WriteText(c.streams.out); err != nil {
				return err
			}
			if c.out != "" {
				name := c.name
				if name == "" {
					name = all.Environment.Date.Format("2006-01-02-150405") + "-leasebench"
				}
				if _, err := all.Save(c.out, name); err != nil {
					return fmt.Errorf("report: %w", err)
				}
			}
			return all.Verdict()
		},
	}
}
