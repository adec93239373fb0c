package registry_test

import (
	"testing"

	"go.uber.org/goleak"
)

// A registry that is closed leaves nothing running.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
