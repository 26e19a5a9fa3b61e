package main

const (
	fillingFile = "raftwal/filling.go"
	sparesFile  = "raftwal/spares.go"
)

// walSpares are about when a spare is made, and which goroutine makes it.
var walSpares = []Mutant{
	{
		Rule: "storage", Name: "a spare is made all at once", Pkg: walPkg, Test: "^TestSpareGrowsWithTheSegmentBeforeIt$",
		File: fillingFile, Old: "min(n.made+s.piece(), s.size)", New: "s.size",
	},
	{
		Rule: "storage", Name: "a spare is made although a segment has been freed", Pkg: walPkg, Test: "^TestNoSpareIsMadeBesideAFreedSegment$",
		File: fillingFile, Old: " || !s.lacks()", New: "",
	},
	{
		Rule: "storage", Name: "the background tries again with each piece", Pkg: walPkg, Test: "^TestSpareThatCannotBeMade$",
		File: fillingFile, Old: "\t\tn.failed.Store(true)\n", New: "",
	},
	{
		Rule: "storage", Name: "the background never tries again", Pkg: walPkg, Test: "^TestSpareThatCannotBeMade$",
		File: sparesFile, Old: "\ts.next.failed.Store(false)\n", New: "",
	},
	{
		Rule: "storage", Name: "a spare that is half made is made anew", Pkg: walPkg, Test: "^TestSegmentIsNeededBeforeItsSpareIsMade$",
		File: fillingFile, Old: "\tif size != s.size {", New: "\tif true {",
	},
	{
		Rule: "storage", Name: "a spare that is half made stays", Pkg: walPkg, Test: "^TestSpareThatIsHalfMadeGoes$",
		File: sparesFile, Old: "\t\t_ = s.discard(p) // the next Open removes it, too\n", New: "\t\t_ = p\n",
	},
	{
		Rule: "storage", Name: "pieces of a spare are not synced", Pkg: walPkg, Test: "^TestSpareGrowsWithTheSegmentBeforeIt$",
		File: fillingFile, Old: "if err := n.spare.file.Sync(); err != nil {", New: "if err := error(nil); err != nil {",
	},
	{
		Rule: "storage", Name: "a spare whose last piece is being made is made twice", Pkg: walPkg, Test: "^TestSegmentIsNeededWhileItsLastPieceIsMade$",
		File: fillingFile, Old: "s.takeReady(size); p != nil || err != nil {", New: "s.takeReady(0); p != nil || err != nil {",
	},
	{
		Rule: "storage", Name: "Close makes all of a spare", Pkg: walPkg, Test: "^TestCloseWaitsForOnePiece$",
		File: sparesFile, Old: "\ts.next.goal.Store(0) // what is made from here on would be discarded\n", New: "",
	},
}
