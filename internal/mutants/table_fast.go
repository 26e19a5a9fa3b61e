package main

const fastkvPkg = "./kvnode/fastkv"

// fasts are bugs of requests that share a stream.
var fasts = []Mutant{
	{
		Rule: "reads", Name: "a get on a stream is answered without the lease", Pkg: apiPkg, Test: "^TestAGetIsAnsweredInPlaceUnderTheLeaseAlone$",
		File: "kvnode/etcdapi/fast.go",
		Old:  "s.place.may && s.kv.node.TryRead()",
		New:  "s.place.may",
	},
	{
		Rule: "reads", Name: "whoever runs may answer at once", Pkg: nodePkg, Test: "^TestTryReadIsForTheLeaseAlone$",
		File: "kvnode/read.go",
		Old:  "return o.cfg.ReadMode == ReadLease && o.atOnce()",
		New:  "return o.cfg.ReadMode == ReadLease",
	},
	{
		Rule: "reads", Name: "a listener's read mode does not hold for streams", Pkg: nodePkg, Test: "^TestTryReadIsForTheLeaseAlone$",
		File: "kvnode/read.go",
		Old:  "return o.cfg.ReadMode == ReadLease && o.atOnce()",
		New:  "return o.atOnce()",
	},
	{
		Rule: "reads", Name: "the lease is asked before a message has come", Pkg: apiPkg, Test: "^TestAGetIsAnsweredInPlaceUnderTheLeaseAlone$",
		File: "kvnode/etcdapi/fast.go",
		Old:  "\tfor {\n\t\tvar message fastwire.Raw\n",
		New:  "\tfor {\n\t\tvar message fastwire.Raw\n\t\ts.place.leased = s.place.may && s.kv.node.TryRead()\n",
		More: []Edit{{
			File: "kvnode/etcdapi/fast.go",
			Old:  "\t\ts.place.leased = s.place.may && s.kv.node.TryRead() // once all of the message have arrived\n",
			New:  "",
		}},
	},
	{
		Rule: "fast", Name: "what comes too late is proposed", Pkg: apiPkg, Test: "^TestItemsHaveTheirTime$",
		File: "kvnode/etcdapi/fastitem.go",
		Old:  "\tif err := i.ctx.Err(); err != nil {\n\t\treturn status.FromContextError(err).Err()\n\t}\n",
		New:  "",
	},
	{
		Rule: "fast", Name: "items without an answer are not counted", Pkg: apiPkg, Test: "^TestItemsThatNeverEnd$",
		File: "kvnode/etcdapi/fast.go",
		Old:  "len(s.mu.under) >= maxItems || s.mu.bytes >= maxItemsBytes ||",
		New:  "s.mu.bytes >= maxItemsBytes ||",
	},
	{
		Rule: "fast", Name: "answers that nobody takes are not counted", Pkg: apiPkg, Test: "^TestAClientThatDoesNotRead$",
		File: "kvnode/etcdapi/fast.go",
		Old:  "len(s.mu.under) >= maxItems || s.mu.bytes >= maxItemsBytes ||",
		New:  "len(s.mu.under) >= maxItems ||",
	},
	{
		Rule: "fast", Name: "a member that stops drops what is under way", Pkg: apiPkg, Test: "^TestAStreamOfAMemberThatStops$",
		File: "kvnode/etcdapi/fast.go",
		Old:  "ctx.Err() != nil && !errors.Is(context.Cause(ctx), rpctypes.ErrGRPCStopped)",
		New:  "ctx.Err() != nil && !errors.Is(nil, rpctypes.ErrGRPCStopped)",
	},
	{
		Rule: "fast", Name: "what is under way goes on when its client has gone", Pkg: apiPkg, Test: "^TestTheEndOfAStream$",
		File: "kvnode/etcdapi/fast.go",
		Old:  "\t\ts.cancel(err)\n",
		New:  "",
	},
	{
		Rule: "fast", Name: "a large answer that was sent keeps its room", Pkg: apiPkg, Test: "^TestALargeAnswerLetsOthersPass$",
		File: "kvnode/etcdapi/fastsend.go",
		Old:  "\t\t\tdone.release()\n",
		New:  "",
	},
	{
		Rule: "fast", Name: "a write that was sent is made again", Pkg: fastkvPkg, Test: "^TestAWriteIsNeverRepeated$",
		File: "kvnode/fastkv/stream.go",
		Old:  "\t\tif c.sent {\n\t\t\tc.err = status",
		New:  "\t\tif false {\n\t\t\tc.err = status",
	},
	{
		Rule: "fast", Name: "the server is not told who waits no longer", Pkg: fastkvPkg, Test: "^TestWaitsEnd$",
		File: "kvnode/fastkv/stream.go",
		Old:  "\tif c.sent {\n\t\ts.mu.waiting = append(",
		New:  "\tif false {\n\t\ts.mu.waiting = append(",
	},
	{
		Rule: "fast", Name: "who gave up before its message left is sent", Pkg: fastkvPkg, Test: "^TestWhoGivesUpIsNotSent$",
		File: "kvnode/fastkv/flow.go",
		Old:  "if c.Cancel || s.mu.under[c.ID] == c {",
		New:  "if true {",
	},
	{
		Rule: "fast", Name: "a piece overwrites what is behind the one before", Pkg: fastkvPkg, Test: "^TestPiecesOverwriteNothing$",
		File: "kvnode/fastkv/flow.go",
		Old:  "slices.Clip(a.Message)",
		New:  "a.Message",
		More: []Edit{{File: "kvnode/fastkv/flow.go", Old: "\t\"slices\"\n", New: ""}},
	},
	{
		Rule: "fast", Name: "a member that hangs keeps its clients", Pkg: fastkvPkg, Test: "^TestASilentStreamIsLeft$",
		File: "kvnode/fastkv/stream.go",
		Old:  "return owed == 0 || now.Sub(s.opened)-owed < pause",
		New:  "return owed == 0 || true",
	},
	{
		Rule: "fast", Name: "a clock that is set forward ends a stream", Pkg: fastkvPkg, Test: "^TestAClockThatIsSet$",
		File: "kvnode/fastkv/stream.go",
		Old:  "now.Sub(s.opened)-owed < pause",
		New:  "now.Round(0).Sub(s.opened)-owed < pause",
	},
	{
		Rule: "fast", Name: "a stream to a follower is for good", Pkg: fastkvPkg, Test: "^TestTheLeaderIsFollowed$",
		File: "kvnode/fastkv/flow.go",
		Old:  "\t\ts.member.Store(follows)\n",
		New:  "",
	},
	{
		Rule: "fast", Name: "a namespace is lost by a stream", Pkg: fastkvPkg, Test: "^TestUseLosesNoWrapper$",
		File: "kvnode/fastkv/fastkv.go",
		Old:  "!reflect.DeepEqual(c.KV, clientv3.NewKV(c))",
		New:  "reflect.DeepEqual(c, nil)",
	},
	{
		Rule: "fast", Name: "a server that does not know the service is asked all the time", Pkg: fastkvPkg, Test: "^TestAServerThatDoesNotKnowTheService$",
		File: "kvnode/fastkv/streams.go",
		Old:  "\t\tk.mu.pause = longAgain\n",
		New:  "\t\tk.mu.pause = again\n",
	},
	{
		Rule: "fast", Name: "each message that is sent makes a stream's bound larger", Pkg: apiPkg, Test: "^TestAStreamThatHasAnsweredAllOwesNothing$",
		File: "kvnode/etcdapi/fastsend.go",
		Old:  "\t\ts.chargeLocked(len(s.mu.out[last]))\n",
		New:  "",
	},
	{
		Rule: "fast", Name: "an ID may be taken twice", Pkg: apiPkg, Test: "^TestAnIDIsNotTakenTwiceInPlace$",
		File: "kvnode/etcdapi/fast.go",
		Old:  "if s.mu.under[id] != nil {",
		New:  "if false {",
	},
	{
		Rule: "fast", Name: "metadata of a request have no bound", Pkg: apiPkg, Test: "^TestAnItemWithTooMuchMetadata$",
		File: "kvnode/etcdapi/fastitem.go",
		Old:  "size > maxHeaderBytes {",
		New:  "false {",
	},
	{
		Rule: "fast", Name: "many streams that are not read have no bound together", Pkg: apiPkg, Test: "^TestManyStreamsThatAreNotRead$",
		File: "kvnode/etcdapi/fast.go",
		Old:  "s.mu.bytes >= fairItemsBytes && s.kv.itemsBytes.Load() >= allItemsBytes",
		New:  "false",
	},
	{
		Rule: "fast", Name: "those who do not read stop those who do", Pkg: apiPkg, Test: "^TestManyStreamsThatAreNotRead$",
		File: "kvnode/etcdapi/fast.go",
		Old:  "s.mu.bytes >= fairItemsBytes && s.kv",
		New:  "s.kv",
	},
	{
		Rule: "fast", Name: "a member that is alone keeps its clients", Pkg: fastkvPkg, Test: "^TestAMemberWithoutALeaderIsLeft$",
		File: "kvnode/fastkv/flow.go",
		Old:  "\tdefault:\n\t\ts.member.Store(alone)\n",
		New:  "",
	},
	{
		Rule: "fast", Name: "a follower is no better than a member that is alone", Pkg: fastkvPkg, Test: "^TestAMemberWithoutALeaderIsLeft$",
		File: "kvnode/fastkv/streams.go",
		Old:  "s.member.Load() >= max(before.member.Load(), follows)",
		New:  "s.member.Load() >= follows",
	},
	{
		Rule: "fast", Name: "a stream has the metadata of its client's context", Pkg: fastkvPkg, Test: "^TestAStreamHasNoMetadata$",
		File: "kvnode/fastkv/streams.go",
		Old:  "metadata.NewOutgoingContext(ctx, nil)",
		New:  "metadata.AppendToOutgoingContext(ctx)",
	},
	{
		Rule: "fast", Name: "a request with much metadata ends a stream", Pkg: fastkvPkg, Test: "^TestMuchMetadata$",
		File: "kvnode/fastkv/fastkv.go",
		Old:  "if size > maxRequest {",
		New:  "if false {",
	},
	{
		Rule: "fast", Name: "a member that is alone is asked again", Pkg: clientPkg, Test: "^TestAStreamOfAMemberThatIsAlone$",
		File: "kvnode/client/stream.go",
		Old:  "if member != 0 && leader == 0 {",
		New:  "if false {",
	},
	{
		Rule: "fast", Name: "answers to those who have gone are charged for ever", Pkg: apiPkg, Test: "^TestAStreamThatHasEndedOwesNothing$",
		File: "kvnode/etcdapi/fastsend.go",
		Old:  "\t\tafter()\n\t\tif err != nil {\n",
		New:  "\t\tif err == nil {\n\t\t\tafter()\n\t\t} else {\n",
	},
	{
		Rule: "fast", Name: "streams are offered past an embedder's interceptors", Pkg: apiPkg, Test: "^TestNoStreamUnlessItIsAskedFor$",
		File: "kvnode/etcdapi/api.go",
		Old:  "\tpb.RegisterKVServer(s, &kvServer{API: a})\n",
		New:  "\tpb.RegisterKVServer(s, &kvServer{API: a})\n\ta.RegisterFast(s)\n",
	},
}
