// Command release packs the modules of this repository as a module proxy serves
// them, so that what a user will get can be tried before it is published.
//
//	go run ./internal/release pack DIR    a file proxy with all modules in DIR
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
	case len(args) == 2 && args[0] == "pack":
		modules, err := Modules(".")
		if err != nil {
			return err
		}
		return Pack(args[1], modules, Required)
	case len(args) == 1 && args[0] == "tidy":
		return tidy(ctx, ".")
	default:
		return fmt.Errorf("%q is none of: pack DIR, tidy", args)
	}
}
