package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/leaderlease/go/cmd/kvnode/internal/settings"
	"github.com/leaderlease/go/kvnode/server/status"
)

const statusLong = `Status asks members how they are: role, term, the leader lease with its state and reason, for how
long it still serves reads (REMAINING) and how long before its end it stops (MARGIN), for how long
the member has promised to elect no other member (PROMISED), reads by path, and how far it has applied
the log. It exits with 1 if a member does not answer.`

// asker holds the flags of kvnode status.
type asker struct {
	caller

	sys      *System
	interval time.Duration
	watch    bool
	output   string
}

func newStatus(sys *System) *cobra.Command {
	a := &asker{sys: sys}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show members with their leases",
		Long:  statusLong,
		Args:  settings.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return a.run(c.Context()) },
	}
	flags := cmd.Flags()
	a.caller.flags(sys, flags, 2*time.Second)
	flags.BoolVarP(&a.watch, "watch", "w", false, "ask again, and draw again, until interrupted")
	flags.DurationVar(&a.interval, "interval", time.Second, "how often, with --watch")
	flags.StringVarP(&a.output, "output", "o", "table", "table or json; with --watch a line of JSON each time")
	if err := cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag
	}
	return cmd
}

func (a *asker) check() error {
	switch {
	case a.output != "table" && a.output != "json":
		return usageError{fmt.Errorf("--output %q must be table or json", a.output)}
	case a.interval < 10*time.Millisecond:
		return usageError{fmt.Errorf("--interval %v must be 10ms at least", a.interval)}
	}
	return a.caller.check()
}

func (a *asker) run(ctx context.Context) error {
	if err := a.check(); err != nil {
		return err
	}
	members, err := connect(a.endpoints, &a.secure)
	defer func() {
		for _, m := range members {
			_ = m.conn.Close() // nothing is under way
		}
	}()
	if err != nil {
		return usageError{err}
	}
	if !a.watch {
		return a.once(ctx, members)
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	return a.redraw(ctx, members)
}

// answer is what one member has answered, or the error.
type answer struct {
	Endpoint string         `json:"endpoint"`
	Status   *status.Report `json:"status,omitempty"`
	Error    string         `json:"error,omitempty"`
}

// once asks all and prints.
func (a *asker) once(ctx context.Context, members []endpoint) error {
	answers := ask(ctx, members, &a.secure, a.timeout)
	if err := a.print(a.sys.Stdout, answers); err != nil {
		return err
	}
	if slices.ContainsFunc(answers, func(x answer) bool { return x.Error != "" }) {
		return errReported
	}
	return nil
}

// redraw asks until it is interrupted.
func (a *asker) redraw(ctx context.Context, members []endpoint) error {
	ticker := time.NewTicker(a.interval)
	defer ticker.Stop()
	for {
		var page strings.Builder
		if err := a.print(&page, ask(ctx, members, &a.secure, a.timeout)); err != nil {
			return err
		}
		if a.output == "table" {
			page.WriteString("\n")
			if isTerminal(a.sys.Stdout) {
				// One write, so that the screen does not flicker.
				page.WriteString("every " + a.interval.String() + ", ends with Ctrl-C\n")
				cleared := "\x1b[H\x1b[2J" + page.String()
				page.Reset()
				page.WriteString(cleared)
			}
		}
		if _, err := io.WriteString(a.sys.Stdout, page.String()); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// endpoint is a connection to one member.
type endpoint struct {
	name string
	conn *grpc.ClientConn
}

// connect makes connections, which dial when they are first used.
func connect(names []string, how *secure) (members []endpoint, err error) {
	patient := grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second},
		// Without it an attempt has 100 ms, in which members far away do not shake hands.
		// With a longer timeout, no attempt would end within --timeout, and the error would not name the reason.
		MinConnectTimeout: time.Second,
	}
	for _, name := range names {
		target, creds, err := how.endpoint(name)
		if err != nil {
			return members, err
		}
		conn, err := grpc.NewClient(target,
			grpc.WithTransportCredentials(creds), grpc.WithConnectParams(patient))
		if err != nil {
			return members, fmt.Errorf("--endpoints %q: %w", name, err)
		}
		members = append(members, endpoint{name, conn})
	}
	return members, nil
}

// ask asks all members at once, so that one that hangs does not hold up the
// others.
func ask(ctx context.Context, members []endpoint, how *secure, timeout time.Duration) []answer {
	asking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answers := make([]answer, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			answers[i].Endpoint = m.name
			r, err := status.Fetch(asking, m.conn)
			if err != nil {
				answers[i].Error = grpcstatus.Convert(err).Message()
				if strings.Contains(answers[i].Error, "unexpected HTTP status code") {
					answers[i].Error = "this port speaks HTTP and no gRPC: give one of --listen-client-urls"
				}
				ctx, cancel := context.WithTimeout(ctx, min(reachTime, timeout))
				defer cancel()
				if reason := how.probe(ctx, m.name); reason != nil {
					answers[i].Error = reason.Error()
				}
				return
			}
			answers[i].Status = &r
		})
	}
	wg.Wait()
	return answers
}
