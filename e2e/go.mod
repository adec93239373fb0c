module github.com/writ-dev/writ/e2e

go 1.26.0

require (
	github.com/modelcontextprotocol/go-sdk v1.8.0
	github.com/writ-dev/writ/clients/go v0.0.0
	github.com/writ-dev/writ/gen/go v0.0.0
	github.com/writ-dev/writ/internal v0.0.0
	golang.org/x/sys v0.50.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

replace (
	github.com/writ-dev/writ/clients/go => ../clients/go
	github.com/writ-dev/writ/gen/go => ../gen/go
	github.com/writ-dev/writ/internal => ../internal
)
