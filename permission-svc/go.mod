module github.com/writ-dev/writ/permission-svc

go 1.26.0

require (
	github.com/writ-dev/writ/clients/go v0.0.0
	github.com/writ-dev/writ/gen/go v0.0.0
	github.com/writ-dev/writ/internal v0.0.0
)

require mvdan.cc/sh/v3 v3.14.1 // indirect

replace (
	github.com/writ-dev/writ/clients/go => ../clients/go
	github.com/writ-dev/writ/gen/go => ../gen/go
	github.com/writ-dev/writ/internal => ../internal
)
