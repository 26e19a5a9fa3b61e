package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// version is the version of Redis that clients are told, as they choose commands by it.
const version = "7.0.0"

const errAuth = failure("ERR AUTH is refused: the gateway has no users and no password, so a password would protect nothing")

func ping(_ *tx, args []string) any {
	switch len(args) {
	case 1:
		return simple("PONG")
	case 2:
		return args[1]
	}
	return failure("ERR wrong number of arguments for 'ping' command")
}

func selectDB(_ *conn, args []string) any {
	if args[1] != "0" {
		return failure("ERR DB index is out of range: there is only 0")
	}
	return ok
}

func clientCommand(c *conn, args []string) any {
	switch strings.ToUpper(args[1]) {
	case "ID":
		return c.id
	case "SETNAME", "SETINFO": // nothing shows them
		return ok
	}
	return failf("ERR unknown subcommand '%.32s'", args[1])
}

func now(*conn, []string) any {
	t := time.Now()
	return []any{strconv.FormatInt(t.Unix(), 10), strconv.Itoa(t.Nanosecond() / 1000)}
}

func quit(c *conn, _ []string) any {
	c.quit = true
	return ok
}

func reset(c *conn, _ []string) any {
	c.endMulti()
	c.resp3 = false
	return simple("RESET")
}

// hello is HELLO [2|3 [AUTH user password] [SETNAME name]].
func hello(c *conn, args []string) any {
	switch {
	case len(args) > 1 && args[1] != "2" && args[1] != "3":
		return failure("NOPROTO unsupported protocol version")
	case len(args) > 2 && strings.EqualFold(args[2], "AUTH"):
		return errAuth
	case len(args) > 2 && (len(args) != 4 || !strings.EqualFold(args[2], "SETNAME")):
		return errSyntax
	case len(args) > 1:
		c.resp3 = args[1] == "3"
	}
	proto := int64(2)
	if c.resp3 {
		proto = 3
	}
	return pairs{
		"server", "redis", "version", version, "proto", proto, "id", c.id,
		"mode", "standalone", "role", "master", "modules",
		[]any{},
	}
}

// info is INFO, of which clients read the version and whether the server is loading its data.
func info(c *conn, _ []string) any {
	return fmt.Sprintf("# Server\r\nredis_version:%s\r\nredis_mode:standalone\r\nserver_name:kvnode\r\n# Clients\r\n"+
		"connected_clients:%d\r\n# Persistence\r\nloading:0\r\n# Replication\r\nrole:master\r\n", version, c.s.open.Load())
}

// configCommand is CONFIG GET name..., as redis-benchmark asks for it.
func configCommand(_ *conn, args []string) any {
	if !strings.EqualFold(args[1], "GET") {
		return failure("ERR only CONFIG GET is supported: the command line configures the gateway")
	}
	found := pairs{}
	for _, name := range args[2:] {
		if value, is := map[string]string{"appendonly": "yes", "save": ""}[strings.ToLower(name)]; is {
			found = append(found, name, value)
		}
	}
	return found
}

func dbsize(c *conn, _ []string) any {
	ctx, cancel := context.WithTimeout(c.s.ctx, c.s.cfg.Timeout)
	defer cancel()
	got, err := c.s.cfg.KV.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
	if err != nil {
		return readFailure(err)
	}
	return got.Count
}
