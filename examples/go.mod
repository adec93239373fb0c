module github.com/writ-dev/writ/examples

go 1.26
