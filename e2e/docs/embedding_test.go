package docs

import (
	"context"
	"fmt"

	evidence "github.com/writ-dev/writ/evidence-svc"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/inproc"
)

// One service in a process of one's own, without a socket. docs/embedding.md shows this text.
func Example_embedding() {
	ctx, stop := context.WithCancel(context.Background())
	svc, err := evidence.New(ctx, evidence.Config{}) // nothing set: a private folder, and a key of its own
	if err != nil {
		panic(err)
	}
	channel, err := inproc.New(inproc.Options{})
	if err != nil {
		panic(err)
	}
	svc.Register(channel)
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()

	// Any other part of the process is a client with a fixed identity.
	receipts := evidencev1.NewReceiptServiceClient(channel.As("exec"))
	answer, err := receipts.ListReceiptKeys(ctx, &evidencev1.ListReceiptKeysRequest{})
	if err != nil {
		panic(err)
	}
	fmt.Println(len(answer.GetKeys()), "key of", answer.GetKeys()[0].GetService())

	channel.Close(ctx) // no new calls
	stop()             // ends Run
	if err := <-ended; err != nil {
		panic(err)
	}
	if err := svc.Close(context.Background()); err != nil { // last: the stores
		panic(err)
	}
	// Output: 1 key of evidence
}
