package main

const (
	obituaryFile = "kvnode/transport/obituary.go"
	guardianPkg  = "./kvnode/guardian"
	waiterFile   = "kvnode/guardian/guard_linux.go"
)

// guardians are bugs of who says that a member is dead, and of who believes it.
var guardians = []Mutant{
	{
		Rule: "guardian", Name: "anybody says that a member is dead", Pkg: "./kvnode/transport", Test: "^TestObituariesThatAreNotBelieved$",
		File: obituaryFile,
		Old:  "\tif r := t.authenticate(in); r != nil {\n\t\treturn r\n\t}\n", New: "",
	},
	{
		Rule: "guardian", Name: "a removed member's obituary is believed", Pkg: "./kvnode/transport", Test: "^TestObituariesThatAreNotBelieved$",
		File: obituaryFile,
		Old:  "\treturn t.cfg.Handler.Admit(in.hello)\n", New: "\treturn nil\n",
	},
	{
		Rule: "guardian", Name: "an obituary of no process is believed", Pkg: "./kvnode/transport", Test: "^TestObituariesThatAreNotBelieved$",
		File: obituaryFile,
		Old:  "in.hello.Process == 0 {", New: "in.hello.From == 0 {",
	},
	{
		Rule: "guardian", Name: "an obituary takes the place of a stream", Pkg: "./kvnode/transport", Test: "^TestObituariesAreTold$",
		File: obituaryFile,
		Old:  "\tt.cfg.Handler.Died(", New: "\tt.enter(in, t.removals())\n\tt.cfg.Handler.Died(",
	},
	{
		Rule: "guardian", Name: "answers name the process", Pkg: "./kvnode/transport", Test: "^TestOnlyStreamsOfMessagesNameTheProcess$",
		File: "kvnode/transport/dial.go",
		Old:  "\th.To, h.Hold, h.Process = to, t.cfg.Hold(), 0\n", New: "\th.To, h.Hold = to, t.cfg.Hold()\n",
	},
	{
		Rule: "guardian", Name: "snapshots name the process", Pkg: "./kvnode/transport", Test: "^TestOnlyStreamsOfMessagesNameTheProcess$",
		File: "kvnode/transport/dial.go",
		Old:  "\tif kind != snapshots {\n", New: "\tif true {\n",
	},
	{
		Rule: "guardian", Name: "messages come from no process", Pkg: "./kvnode/transport", Test: "^TestMessagesComeWithTheirProcess$",
		File: "kvnode/transport/receive.go",
		Old:  "Receive(m, in.hello.Process)", New: "Receive(m, 0)",
	},
	{
		Rule: "guardian", Name: "who cannot be waited for is dead", Pkg: guardianPkg, Test: "^TestWhatIsDead$",
		File: waiterFile,
		Old:  "\tif s == nil || s.Pid() != pid {\n\t\treturn false\n", New: "\tif s == nil || s.Pid() != pid {\n\t\treturn true\n",
	},
	{
		Rule: "guardian", Name: "whose pipe has closed is dead", Pkg: guardianPkg, Test: "^TestAClosedPipeIsNoDeath$",
		File: waiterFile,
		Old:  "\t_ = cmd.Wait() // the state says it\n\tif !isDead(cmd.ProcessState, cmd.Process.Pid) {\n",
		New:  "\t<-wills.done\n\tif false {\n",
	},
	{
		Rule: "guardian", Name: "who is stopped is dead", Pkg: guardianPkg, Test: "^TestAStoppedChildIsNotToldOf$",
		File: waiterFile,
		Old:  "\t_ = cmd.Wait() // the state says it\n\tif !isDead(cmd.ProcessState, cmd.Process.Pid) {\n",
		New:  "\t_, _ = unix.Wait4(cmd.Process.Pid, nil, unix.WUNTRACED, nil)\n\tif false {\n",
	},
	{
		Rule: "guardian", Name: "a member outlives its guardian", Pkg: guardianPkg, Test: "^TestAGuardianTakesItsChildAlong$",
		File: waiterFile,
		Old:  "Pdeathsig: syscall.SIGKILL", New: "Pdeathsig: 0",
	},
	{
		Rule: "guardian", Name: "the watchdog stays the guardian's", Pkg: guardianPkg, Test: "^TestAKilledChildIsToldOf$",
		File: waiterFile,
		Old:  "func(v string) bool { return v == variable }", New: "func(v string) bool { return v == variable+variable }",
	},
	{
		Rule: "guardian", Name: "a guardian ends well whatever its child did", Pkg: guardianPkg, Test: "^TestSignalsAndExitCodesArePassedOn$",
		File: "kvnode/guardian/end_linux.go",
		Old:  "\t\tif d.State.Success() {\n", New: "\t\tif d.State != nil {\n",
	},
	{
		Rule: "guardian", Name: "a guardian ends with the reader of its log", Pkg: guardianPkg, Test: "^TestALogWithoutReader$",
		File: waiterFile,
		Old:  "\tsignal.Ignore(syscall.SIGPIPE)\n", New: "",
	},
	{
		Rule: "guardian", Name: "a guardian waits for who reads its log", Pkg: "./cmd/kvnode/internal/cli", Test: "^TestALateLoggerIsNotWaitedFor$",
		File: "cmd/kvnode/internal/cli/guard.go",
		Old:  "time.After(openTime)", New: "time.After(1000 * openTime)",
	},
	{
		Rule: "guardian", Name: "a will that was cut off counts", Pkg: guardianPkg, Test: "^TestTheNewestWillCounts$",
		File: "kvnode/guardian/death.go",
		Old:  "\t\t\tif decoder.Decode(will) != nil {\n\t\t\t\treturn\n", New: "\t\t\tif decoder.Decode(will) != nil {\n\t\t\t\tw.newest.Store(will)\n\t\t\t\treturn\n",
	},
	{
		Rule: "guardian", Name: "an obituary is a hint", Pkg: nodePkg, Test: "^TestAnObituaryVoidsThePromise$",
		File: "kvnode/failover.go",
		Old:  "\tcase void:\n", New: "\tcase void && l.cfg.IgnoreClosed && l.cfg.IgnoreSilence:\n",
	},
	{
		Rule: "guardian", Name: "the lease is not told from which process messages come", Pkg: nodePkg, Test: "^TestAnObituaryVoidsThePromise$",
		File: "kvnode/peers.go",
		Old:  "IncomingFrom(m, core.Process(process))", New: "IncomingFrom(m, core.Process(process*0))",
	},
	{
		Rule: "guardian", Name: "who has heard of a death asks for pre-votes", Pkg: nodePkg, Test: "^TestAnObituaryThatOneHears$",
		File: "kvnode/failover.go",
		Old:  "!(do.Force && l.force())", New: "(!do.Force || l.raw != nil)",
	},
	{
		Rule: "guardian", Name: "a will is as of the start", Pkg: nodePkg, Test: "^TestAWillFollowsTheMembers$",
		File: "kvnode/guardian.go",
		Old:  "if r.cfg.Guardian != nil {", New: "if r.cfg.Guardian != nil && len(r.links.Will().Peers) != 1 {",
	},
}
