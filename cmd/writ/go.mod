module github.com/writ-dev/writ/cmd/writ

go 1.26

require (
	github.com/writ-dev/writ/gen/go v0.0.0
	github.com/writ-dev/writ/clients/go v0.0.0
	github.com/writ-dev/writ/internal v0.0.0
	github.com/writ-dev/writ/registry-svc v0.0.0
	github.com/writ-dev/writ/permission-svc v0.0.0
	github.com/writ-dev/writ/mcp-host-svc v0.0.0
	github.com/writ-dev/writ/exec-svc v0.0.0
	github.com/writ-dev/writ/evidence-svc v0.0.0
	github.com/writ-dev/writ/gateway-svc v0.0.0
)

replace (
	github.com/writ-dev/writ/gen/go => ../../gen/go
	github.com/writ-dev/writ/clients/go => ../../clients/go
	github.com/writ-dev/writ/internal => ../../internal
	github.com/writ-dev/writ/registry-svc => ../../registry-svc
	github.com/writ-dev/writ/permission-svc => ../../permission-svc
	github.com/writ-dev/writ/mcp-host-svc => ../../mcp-host-svc
	github.com/writ-dev/writ/exec-svc => ../../exec-svc
	github.com/writ-dev/writ/evidence-svc => ../../evidence-svc
	github.com/writ-dev/writ/gateway-svc => ../../gateway-svc
)
