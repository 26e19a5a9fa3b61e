package memlink_test

import (
	"context"
	"fmt"
	"io"

	"github.com/leaderlease/go/internal/memlink"
)

// Two hosts, as the Listener and the Dial of two members' configurations.
func ExampleNetwork() {
	network := memlink.New()
	ln, err := network.Listen("n2:2380")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = ln.Close() }()
	dial := network.Dialer("n1")

	c, err := dial(context.Background(), "n2:2380")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()
	peer, err := ln.Accept()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = peer.Close() }()

	network.Cut("n1", "n2")
	_, _ = io.WriteString(c, "held, not lost")
	network.Heal("n1", "n2")

	b := make([]byte, 64)
	n, err := peer.Read(b)
	fmt.Printf("%s %v\n", b[:n], err)
	// Output: held, not lost <nil>
}
