module github.com/leaderlease/go/leaderlease/fence/boltfence

go 1.26

require (
	github.com/leaderlease/go/leaderlease v0.1.0
	go.etcd.io/bbolt v1.4.0
	go.uber.org/goleak v1.3.0
)

require golang.org/x/sys v0.30.0 // indirect
