module github.com/writ-dev/writ/clients/go

go 1.26

require github.com/writ-dev/writ/gen/go v0.0.0

require pgregory.net/rapid v1.3.0 // indirect

replace github.com/writ-dev/writ/gen/go => ../../gen/go
