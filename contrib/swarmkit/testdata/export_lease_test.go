package raft

import "github.com/leaderlease/go/leaderlease"

// Lease is the node's lease, for what tests count.
func (n *Node) Lease() *leaderlease.Lease { return n.lease }
