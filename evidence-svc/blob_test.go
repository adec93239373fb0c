package evidence_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	evidence "github.com/writ-dev/writ/evidence-svc"
	"github.com/writ-dev/writ/evidence-svc/evidencetest"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/receipt"
)

func put(ctx context.Context, s *evidencetest.Server, head *evidencev1.PutBlobHeader, content []byte) (*commonv1.BlobRef, error) {
	stream, err := evidencev1.NewBlobServiceClient(s.As("mcp-host")).PutBlob(ctx)
	if err != nil {
		return nil, err
	}
	err = stream.Send(&evidencev1.PutBlobRequest{Part: &evidencev1.PutBlobRequest_Header{Header: head}})
	for chunk := content; err == nil && len(chunk) > 0; {
		n := min(len(chunk), 1<<20)
		err = stream.Send(&evidencev1.PutBlobRequest{Part: &evidencev1.PutBlobRequest_Chunk{Chunk: chunk[:n]}})
		chunk = chunk[n:]
	}
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the answer is there already
		return nil, err
	}
	answer, err := stream.CloseAndRecv()
	return answer.GetBlob(), err
}

func get(ctx context.Context, c evidencev1.BlobServiceClient, handle string, offset int64) ([]byte, error) {
	stream, err := c.GetBlob(ctx, &evidencev1.GetBlobRequest{Handle: handle, Offset: offset})
	if err != nil {
		return nil, err
	}
	var out []byte
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, m.GetChunk()...)
	}
}

func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 >> 3)
	}
	return b
}

func TestABlobComesBackFromAnyOffset(t *testing.T) { // R104
	s := start(t)
	head := &evidencev1.PutBlobHeader{Namespace: "default", MediaType: "image/png"}
	for _, size := range []int{0, 1, 256 << 10, 256<<10 + 1, 3<<20 + 17} {
		want := content(size)
		ref, err := put(t.Context(), s, head, want)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(want)
		if ref.GetSha256() != hex.EncodeToString(sum[:]) || ref.GetSize() != int64(size) || ref.GetMediaType() != "image/png" {
			t.Errorf("%d bytes: %v", size, ref)
		}
		for _, offset := range []int{0, size / 3, size} {
			got, err := get(t.Context(), evidencev1.NewBlobServiceClient(s.Channel.WithToken("caller")), ref.GetHandle(), int64(offset))
			if err != nil || !bytes.Equal(got, want[offset:]) {
				t.Errorf("%d bytes from %d: %d bytes, %v", size, offset, len(got), err)
			}
		}
		again, err := put(t.Context(), s, head, want)
		if err != nil || again.GetHandle() != ref.GetHandle() {
			t.Errorf("the same bytes are another blob: %v %v", again, err)
		}
	}
}

func TestAnnouncedDigestsAndSizesAreKept(t *testing.T) { // R104
	s := evidencetest.New(t, evidence.Config{Limits: evidence.Limits{BlobMaxBytes: 2 << 20}}, nil)
	_, err := put(t.Context(), s, &evidencev1.PutBlobHeader{Namespace: "default", Sha256: strings.Repeat("00", 32)}, content(10))
	if wantReason(t, err, "BLOB_DIGEST_MISMATCH"); status.Code(err) != codes.DataLoss {
		t.Errorf("code %v", status.Code(err))
	}
	_, err = put(t.Context(), s, &evidencev1.PutBlobHeader{Namespace: "default"}, content(2<<20+1))
	if m := wantReason(t, err, "LIMIT_EXCEEDED"); m["limit_name"] != "blob_max_bytes" {
		t.Errorf("metadata %v", m)
	}
}

func TestAChangedByteIsNoticed(t *testing.T) { // R104
	dir := t.TempDir()
	s := evidencetest.New(t, evidence.Config{Dir: dir}, nil)
	want := content(600 << 10)
	ref, err := put(t.Context(), s, &evidencev1.PutBlobHeader{Namespace: "default"}, want)
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "blobs", "*", "*", ref.GetSha256()))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v %v", found, err)
	}
	reader := evidencev1.NewBlobServiceClient(s.Channel.WithToken("caller"))
	for _, at := range []int{0, 300 << 10, len(want) - 1} {
		changed := bytes.Clone(want)
		changed[at] ^= 1
		if err := errors.Join(os.Chmod(found[0], 0o600), os.WriteFile(found[0], changed, 0o600)); err != nil {
			t.Fatal(err)
		}
		for _, offset := range []int64{0, int64(len(want)) - 10} {
			got, err := get(t.Context(), reader, ref.GetHandle(), offset)
			if wantReason(t, err, "BLOB_CORRUPT"); status.Code(err) != codes.DataLoss || int64(len(got)) == int64(len(want))-offset {
				t.Errorf("byte %d: the whole blob came, %v", at, err)
			}
		}
	}
	if err := os.Truncate(found[0], 100); err != nil {
		t.Fatal(err)
	}
	_, err = get(t.Context(), reader, ref.GetHandle(), 0)
	wantReason(t, err, "BLOB_CORRUPT")
	// The good bytes heal it: the name says what they must be.
	if _, err := put(t.Context(), s, &evidencev1.PutBlobHeader{Namespace: "default"}, want); err != nil {
		t.Fatal(err)
	}
	if got, err := get(t.Context(), reader, ref.GetHandle(), 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("after putting it again: %v", err)
	}
	if err := os.Remove(found[0]); err != nil {
		t.Fatal(err)
	}
	_, err = get(t.Context(), reader, ref.GetHandle(), 0)
	wantReason(t, err, "BLOB_CORRUPT")
}

func TestAHandleIsGoodInItsConversationOnly(t *testing.T) { // R104; design: trust 6
	s := tenants(t)
	ref, err := put(t.Context(), s, &evidencev1.PutBlobHeader{Namespace: "default", Conversation: "conversation"}, []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(token string) error {
		_, err := get(t.Context(), evidencev1.NewBlobServiceClient(s.Channel.WithToken(token)), ref.GetHandle(), 0)
		return err
	}
	wantReason(t, read("caller"), "BLOB_NOT_FOUND")
	run(t, s, newCall(t, nil)) // a call of the caller's in that conversation
	if err := read("caller"); err != nil {
		t.Error(err)
	}
	if err := read("approver"); err != nil {
		t.Error(err)
	}
	for _, token := range []string{"mate", "stranger", "boss"} {
		wantReason(t, read(token), "BLOB_NOT_FOUND")
	}
	// The same bytes in another namespace are another blob.
	other, err := put(t.Context(), s, &evidencev1.PutBlobHeader{Namespace: "other"}, []byte("secret"))
	if err != nil || other.GetHandle() == ref.GetHandle() {
		t.Errorf("%v %v", other, err)
	}
}

func TestALargeResultIsSealedAsABlob(t *testing.T) { // R73, R104
	s := start(t)
	c := newCall(t, nil)
	mark := claimed(t, s, c)
	result := content(2 << 20)
	ref, err := put(t.Context(), s, &evidencev1.PutBlobHeader{Namespace: "default", Conversation: "conversation"}, result)
	if err != nil {
		t.Fatal(err)
	}
	seal := func(committed []byte) (*evidencev1.Receipt, error) {
		f, o := c.completed("")
		o.Outcome.ResultBlob, o.ResultSalt = ref, []byte("0123456789abcdef")
		f.Result = receipt.Committed(o.ResultSalt, committed)
		return s.Sealer("exec").Seal(t.Context(), f, o, mark.GetClaimToken())
	}
	_, err = seal(result[1:])
	if m := wantReason(t, err, "STATEMENT_INVALID"); m["field"] != "predicate.result" {
		t.Errorf("metadata %v", m)
	}
	r, err := seal(result)
	if err != nil {
		t.Fatal(err)
	}
	verify(t.Context(), t, s, r)
	got, err := get(t.Context(), evidencev1.NewBlobServiceClient(s.Channel.WithToken("caller")), ref.GetHandle(), 0)
	if err != nil || !bytes.Equal(got, result) {
		t.Errorf("the result changed: %v", err)
	}
}
