package main

// fastGets are bugs of gets on a stream, and of who does its items.
var fastGets = []Mutant{
	{
		Rule: "limits", Name: "gets in place are not bounded", Pkg: apiPkg, Test: "^TestInPlaceAsACall$",
		File: "kvnode/etcdapi/fastplace.go",
		Old:  "s.kv.inFlight.Load()+1",
		New:  "1",
	},
	{
		Rule: "fast", Name: "a get in place requires no leader", Pkg: apiPkg, Test: "^TestInPlaceAsACall$",
		File: "kvnode/etcdapi/fastplace.go",
		Old:  "requiresLeader(ctx)",
		New:  "false",
	},
	{
		Rule: "fast", Name: "gets in place are not counted", Pkg: apiPkg, Test: "^TestInPlaceAsACall$",
		File: "kvnode/etcdapi/fastplace.go",
		Old:  "\t\tp.calls.Done(p.done)\n",
		New:  "\t\tp.calls.Done(0)\n",
	},
	{
		Rule: "fast", Name: "refused gets in place are not counted", Pkg: apiPkg, Test: "^TestInPlaceAsACall$",
		File: "kvnode/etcdapi/fastplace.go",
		Old:  "p.calls.End(p.calls.Begin(), err)",
		New:  "p.calls.Begin()",
	},
	{
		Rule: "fast", Name: "gets in place are not timed", Pkg: apiPkg, Test: "^TestInPlaceAsACall$",
		File: "kvnode/etcdapi/fastplace.go",
		Old:  "\t\ta.times.took[requests.Range][1].Note(took)\n",
		New:  "",
	},
	{
		Rule: "fast", Name: "answers wait with who receives", Pkg: apiPkg, Test: "^TestInPlaceBeforeWhatWaits$",
		File: "kvnode/etcdapi/fast.go",
		Old:  "\t\ts.flushLocked() // or there may be nothing that could be sent\n",
		New:  "",
	},
	{
		Rule: "fast", Name: "a get in place takes as long as what was before it", Pkg: apiPkg, Test: "^TestInPlaceBeforeWhatWaits$",
		File: "kvnode/etcdapi/fast.go",
		Old:  "\t\ts.place.at = time.Time{}\n",
		New:  "",
	},
	{
		Rule: "fast", Name: "what asks for more is taken for a get", Pkg: "./kvnode/internal/fastwire", Test: "^TestAGetIsOneForProto$",
		File: "kvnode/internal/fastwire/get.go",
		Old:  "\t\tdefault:\n\t\t\treturn nil, false\n",
		New:  "\t\tdefault:\n\t\t\t_, n = protowire.ConsumeVarint(data[1:])\n",
	},
	{
		Rule: "fast", Name: "a key that a get gives is part of its message", Pkg: "./kvnode/internal/fastwire", Test: "^TestWhatAGetGives$",
		File: "kvnode/internal/fastwire/got.go",
		Old:  "\t\tkv.Value = own[k:]\n",
		New:  "\t\t_ = own[k:]\n",
	},
	{
		Rule: "fast", Name: "metadata of a get are lost", Pkg: fastkvPkg, Test: "^TestAGetThatIsNotForTheShorterWay$",
		File: "kvnode/fastkv/kv.go",
		Old:  "metadata.FromOutgoingContext(ctx); ok {",
		New:  "metadata.FromOutgoingContext(ctx); ok && false {",
	},
	{
		Rule: "fast", Name: "options of a get are lost", Pkg: fastkvPkg, Test: "^TestAGetThatIsNotForTheShorterWay$",
		File: "kvnode/fastkv/kv.go",
		Old:  "if len(opts) > 0 {",
		New:  "if len(opts) > 9 {",
	},
	{
		Rule: "fast", Name: "a get that becomes Unavailable is not repeated", Pkg: fastkvPkg, Test: "^TestAGetByTheShorterWay$",
		File: "kvnode/fastkv/kv.go",
		Old:  " || status.Code(err) == codes.Unavailable {",
		New:  " || status.Code(err) == codes.DataLoss {",
	},
	{
		Rule: "fast", Name: "errors of a get are not those of clientv3", Pkg: fastkvPkg, Test: "^TestAGetByTheShorterWay$",
		File: "kvnode/fastkv/kv.go",
		Old:  "clientv3.ContextError(ctx, err)",
		New:  "err",
	},
	{
		Rule: "fast", Name: "a get has no bound of its response", Pkg: fastkvPkg, Test: "^TestAGetByTheShorterWay$",
		File: "kvnode/fastkv/kv.go",
		Old:  "Message: message}, k.receive)",
		New:  "Message: message}, 1<<30)",
	},
	{
		Rule: "fast", Name: "a client's bounds do not hold for gets", Pkg: fastkvPkg, Test: "^TestBoundsOfAClient$",
		File: "kvnode/fastkv/kv.go",
		Old:  "limits(o.all)",
		New:  "limits(nil)",
	},
	{
		Rule: "fast", Name: "each who has done an item waits for another", Pkg: apiPkg, Test: "^TestWhoHasDoneAnItemWaitsForAnother$",
		File: "kvnode/etcdapi/fastitem.go",
		Old:  "s.kv.idleWorkers.Add(1) > maxIdleWorkers",
		New:  "s.kv.idleWorkers.Add(1) > maxItems",
	},
	{
		Rule: "fast", Name: "nobody takes a second item", Pkg: apiPkg, Test: "^TestWhoHasDoneAnItemWaitsForAnother$",
		File: "kvnode/etcdapi/fastitem.go",
		Old:  "\tcase s.idle <- i:\n\tdefault:\n",
		New:  "\tdefault:\n",
	},
}
