package e2e

import (
	"testing"

	"github.com/writ-dev/writ/e2e/internal/stack"
)

func TestMain(m *testing.M) { stack.Main(m) }
