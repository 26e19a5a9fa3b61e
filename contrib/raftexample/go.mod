module github.com/leaderlease/go/contrib/raftexample

go 1.26.0

require github.com/leaderlease/go v0.0.0

require golang.org/x/mod v0.41.0 // indirect

replace github.com/leaderlease/go => ../..

replace github.com/leaderlease/go/leaderlease => ../../leaderlease

replace github.com/leaderlease/go/leaderlease/leasetest => ../../leaderlease/leasetest

replace github.com/leaderlease/go/leaderlease/metrics => ../../leaderlease/metrics
