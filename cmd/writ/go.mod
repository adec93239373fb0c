module github.com/writ-dev/writ/cmd/writ

go 1.26.0

require (
	github.com/writ-dev/writ/clients/go v0.0.0
	github.com/writ-dev/writ/evidence-svc v0.0.0
	github.com/writ-dev/writ/exec-svc v0.0.0
	github.com/writ-dev/writ/gateway-svc v0.0.0
	github.com/writ-dev/writ/gen/go v0.0.0
	github.com/writ-dev/writ/internal v0.0.0
	github.com/writ-dev/writ/mcp-host-svc v0.0.0
	github.com/writ-dev/writ/permission-svc v0.0.0
	github.com/writ-dev/writ/registry-svc v0.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/cobra v1.10.2 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	go.opentelemetry.io/otel v1.47.0 // indirect
	go.opentelemetry.io/otel/trace v1.47.0 // indirect
	go.opentelemetry.io/proto/otlp v1.11.1 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/term v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace (
	github.com/writ-dev/writ/clients/go => ../../clients/go
	github.com/writ-dev/writ/evidence-svc => ../../evidence-svc
	github.com/writ-dev/writ/exec-svc => ../../exec-svc
	github.com/writ-dev/writ/gateway-svc => ../../gateway-svc
	github.com/writ-dev/writ/gen/go => ../../gen/go
	github.com/writ-dev/writ/internal => ../../internal
	github.com/writ-dev/writ/mcp-host-svc => ../../mcp-host-svc
	github.com/writ-dev/writ/permission-svc => ../../permission-svc
	github.com/writ-dev/writ/registry-svc => ../../registry-svc
)
