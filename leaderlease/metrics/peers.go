package metrics

import (
	"github.com/leaderlease/go/leaderlease"
)

// peerState is what is most wrong with a voter as the leader sees it.
type peerState uint8

const (
	// peerSuspectClock: its clock was seen to run outside the configured bound.
	peerSuspectClock peerState = iota
	// peerSilent: it has granted nothing for a whole Duration.
	peerSilent
	// peerOtherDuration: it promises something else than Duration.
	peerOtherDuration
	// peerGranting: nothing is wrong.
	peerGranting

	numPeerStates = int(peerGranting) + 1
)

var peerStateNames = [numPeerStates]string{"suspect_clock", "silent", "other_duration", "granting"}

func stateOf(p *leaderlease.PeerInfo, s *leaderlease.Info) peerState {
	switch {
	case p.ClockSuspect:
		return peerSuspectClock
	case p.GrantAge < 0 || p.GrantAge > s.Duration:
		return peerSilent
	case p.Duration != s.Duration:
		return peerOtherDuration
	default:
		return peerGranting
	}
}

// countPeers counts the other voters by state.
func countPeers(s *leaderlease.Info) (counts [numPeerStates]int) {
	for i := range s.Peers {
		counts[stateOf(&s.Peers[i], s)]++
	}
	return counts
}
