package main

import "slices"

// rules take one rule out, or half of it, and name the directed test that must
// then fail (leaderlease/leasetest/rules, and leaderlease itself).
var rules = slices.Concat(voterRules, savedRules, detectorRules, silenceRules, leaderRules, resignRules, obituaryRules, readRules, commitRules)

const (
	libPkg     = "./leaderlease"
	rulesPkg   = "./leaderlease/leasetest/rules"
	simPkg     = "./leaderlease/leasetest/sim"
	nodeSim    = "./leaderlease/leasetest"
	nodePkg    = "./kvnode"
	guardFile  = "leaderlease/core/guard.go"
	leaseFile  = "leaderlease/core/lease.go"
	peerFile   = "leaderlease/core/peer.go"
	quorumFile = "leaderlease/core/lease.go"
	votesFile  = "leaderlease/core/votes.go"
)
