// Command writ is the tool plane in one process, and its command line.
package main

import (
	"os"

	"github.com/writ-dev/writ/cmd/writ/internal/cli"
	"github.com/writ-dev/writ/internal/sandbox"
)

func main() {
	// A process that was started as the init of a sandbox becomes it here and never returns.
	sandbox.Main()
	os.Exit(cli.Main(os.Args[1:], cli.Standard()))
}
