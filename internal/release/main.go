// Command release makes what is published: archives of the programs, and the modules of this
// repository as a module proxy serves them, so that what a user will get can be tried before.
//
//	go run ./internal/release build VERSION DIR [OS/ARCH...]    archives, SBOMs and sums in DIR
//	go run ./internal/release pack DIR    a file proxy with all modules in DIR
//	go run ./internal/release try DIR     the same under a version of their own, which it prints
//	go run ./internal/release tidy        go mod tidy in each module
//
// In development go.work joins the modules. Published ones know each other by
// version alone; nothing but this command sees them so.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/leaderlease/go/internal/modules"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch {
	case len(args) >= 3 && args[0] == "build":
		on, err := platformsOf(args[3:])
		if err != nil {
			return err
		}
		return build(ctx, ".", args[1], args[2], on)
	case len(args) == 2 && args[0] == "pack":
		all, err := modules.All(".")
		if err != nil {
			return err
		}
		return modules.Pack(args[1], all, modules.Required)
	case len(args) == 2 && args[0] == "try":
		return try(args[1])
	case len(args) == 1 && args[0] == "tidy":
		return tidy(ctx, ".")
	default:
		return fmt.Errorf("%q is none of: build VERSION DIR [OS/ARCH...], pack DIR, try DIR, tidy", args)
	}
}

// try packs the modules for somebody who has the usual module cache, which keeps
// what it knows of a version for ever.
func try(dir string) error {
	all, err := modules.All(".")
	if err != nil {
		return err
	}
	version, err := modules.Fingerprint(all)
	if err != nil {
		return err
	}
	if err := modules.Pack(dir, all, version); err != nil {
		return err
	}
	_, err = fmt.Println(version)
	return err
}
