module github.com/leaderlease/go/contrib/raftexample

go 1.26.0
