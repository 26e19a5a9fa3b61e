package main

const lockFile = "cmd/kvnode/internal/cli/lock.go"

// commands are bugs of what kvnode's commands do to others' processes and files.
var commands = []Mutant{
	{
		Rule: "cli", Name: "Ctrl-C is told to a command twice", Pkg: cliPkg, Test: "^TestCtrlCIsToldOnce$",
		File: lockFile,
		Old:  "if !typed(s) {", New: "if true {",
	},
	{
		Rule: "cli", Name: "Ctrl-C ends the command of a lock", Pkg: cliPkg, Test: "^TestCtrlCIsToldOnce$",
		File: lockFile,
		Old:  "[]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}", New: "[]os.Signal{syscall.SIGTERM}",
	},
	{
		Rule: "cli", Name: "what the shell has ignored is minded", Pkg: cliPkg, Test: "^TestWhatWasIgnoredStaysSo$",
		File: "cmd/kvnode/internal/cli/caller.go",
		Old:  "if !signal.Ignored(os.Interrupt) {", New: "if true {",
	},
	{
		Rule: "cli", Name: "who is interrupted begins all the same", Pkg: cliPkg, Test: "^TestALockThatIsInterruptedRunsNothing$",
		File: lockFile,
		Old:  "\tif asked.Err() != nil {\n", New: "\tif false {\n",
	},
	{
		Rule: "cli", Name: "a command outlives its lock's holder", Pkg: cliPkg, Test: "^TestALockedCommandEndsWithItsHolder$",
		File: lockFile,
		Old:  "\tcmd.SysProcAttr = untilWeEnd()\n", New: "",
	},
	{
		Rule: "cli", Name: "a damaged backup takes the place of a good one", Pkg: cliPkg, Test: "^TestADamagedSnapshotReplacesNothing$",
		File: "cmd/kvnode/internal/cli/snapshot_save.go",
		Old:  "os.Rename(arrived, bad))", New: "os.Rename(arrived, path))",
	},
	{
		Rule: "cli", Name: "a backup takes the place of a device", Pkg: cliPkg, Test: "^TestASnapshotReplacesFilesAlone$",
		File: "cmd/kvnode/internal/cli/snapshot_save.go",
		Old:  "!info.Mode().IsRegular()", New: "info.IsDir()",
	},
}
