package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/leaderlease/go/leaderlease/leasetrace"
)

// tracedSeeds is how many seeds a mutated simulator runs, each for as long as its own
// oracles let it.
const tracedSeeds = 12

// traced lets a mutated simulator write what its leases decide, and judges that here,
// where nothing is mutated.
func traced(ctx context.Context, overlay, dir string) (outcome, error) {
	binary, err := compile(ctx, simPkg, overlay, dir)
	if err != nil {
		return outcome{}, err
	}
	out, err := run(ctx, simPkg, binary, "-test.run", "^TestSimulation$", "-test.timeout", "0",
		fmt.Sprintf("-seeds=%d", tracedSeeds), fmt.Sprintf("-stop=%d", tracedSeeds), "-skip-guard", "-traced=0", "-trace="+dir)
	files, globErr := filepath.Glob(filepath.Join(dir, "*.trace"))
	if globErr != nil || len(files) == 0 {
		return outcome{}, errors.Join(globErr, err, fmt.Errorf("no trace was written: %s", lastLine(out)))
	}
	events := 0
	for _, file := range files {
		all, err := leasetrace.ReadFiles(file)
		if err != nil {
			return outcome{}, err
		}
		v := leasetrace.Judge(all)
		if v.Refused != nil {
			return outcome{ran: true, caught: true, detail: fmt.Sprintf("by the judge of its traces: %v", v.Refused)}, ctx.Err()
		}
		events += v.Events()
	}
	return outcome{ran: true, detail: fmt.Sprintf("the judge of its traces, %d seeds, %d events", len(files), events)}, ctx.Err()
}
