package detector

// Known is what is known at the moment of a Tick or a Poll.
type Known struct {
	// Voters are the voters in order of their IDs, as applied: of both halves, if the
	// configuration is joint.
	Voters []uint64
	// Leads: the member leads. Candidate: it stands for election, with others' pre-votes
	// behind it. Away: it does not take part, or has not applied what bootstrapping made.
	Leads, Candidate, Away bool
	// Bound: it has promised not to campaign, or may have before it restarted;
	// Lease.CanCampaign tells.
	Bound bool
}

// Decision is what to do now, in the order of the fields.
type Decision struct {
	// Forget: have raft forget its leader (ForgetLeader), so that it votes at once.
	Forget bool
	// Campaign: have raft campaign.
	Campaign bool
	// Force: campaign by the message that Lease.Obituary has returned, through Incoming and raft's
	// Step; where raft is no follower, or has left the message's term, as ever.
	Force bool
}
