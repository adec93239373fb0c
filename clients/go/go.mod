module github.com/writ-dev/writ/clients/go

go 1.26

require (
	github.com/writ-dev/writ/gen/go v0.0.0
)

replace (
	github.com/writ-dev/writ/gen/go => ../../gen/go
)
