module github.com/leaderlease/go/leaderlease

go 1.26

require (
	github.com/cockroachdb/datadriven v1.0.2
	go.etcd.io/raft/v3 v3.7.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.30.0
	google.golang.org/protobuf v1.36.11
	pgregory.net/rapid v1.2.0
)

require github.com/pmezard/go-difflib v1.0.0 // indirect
