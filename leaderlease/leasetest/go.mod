module github.com/leaderlease/go/leaderlease/leasetest

go 1.26

require (
	github.com/anishathalye/porcupine v1.0.0
	github.com/cockroachdb/datadriven v1.0.3
	github.com/leaderlease/go/leaderlease v0.1.0
	go.etcd.io/raft/v3 v3.7.0
	go.uber.org/goleak v1.3.0
	google.golang.org/protobuf v1.36.11
)

require (
	github.com/pmezard/go-difflib v1.0.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
)
