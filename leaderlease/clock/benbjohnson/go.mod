module github.com/leaderlease/go/leaderlease/clock/benbjohnson

go 1.26

require (
	github.com/benbjohnson/clock v1.3.0
	github.com/leaderlease/go/leaderlease v0.1.0
	go.uber.org/goleak v1.3.0
)

require (
	go.etcd.io/raft/v3 v3.7.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)
