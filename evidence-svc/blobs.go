package evidence

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"

	"google.golang.org/grpc/codes"

	"github.com/writ-dev/writ/evidence-svc/internal/blob"
	"github.com/writ-dev/writ/evidence-svc/internal/store"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/ids"
)

// chunkMax is the size of a chunk in both directions.
const chunkMax = 1 << 20

// readChunk is the size of the chunks that GetBlob sends.
const readChunk = 256 << 10

// PutBlob implements BlobService.
func (s *Server) PutBlob(stream evidencev1.BlobService_PutBlobServer) error {
	ctx := stream.Context()
	_, only, err := peerOf(ctx)
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	head := first.GetHeader()
	switch {
	case head == nil:
		return fieldInvalid("header", "the first message must hold the header")
	case head.GetNamespace() == "" || len(head.GetNamespace()) > 128 || only != "" && head.GetNamespace() != only:
		return fieldInvalid("header.namespace", "is missing, too long, or not that of the credential")
	}
	namespace, err := s.store.NamespaceID(ctx, head.GetNamespace())
	if err != nil {
		return storeError(err)
	}
	digest, size, err := s.receive(stream, namespace, head.GetSha256())
	if err != nil {
		return err
	}
	b, err := s.store.PutBlob(ctx, store.Blob{
		Namespace: head.GetNamespace(), SHA256: digest, Size: size, Handle: ids.New("b_", rand.Reader),
		Conversation: head.GetConversation(), MediaType: head.GetMediaType(),
	})
	if err != nil {
		return storeError(err)
	}
	return stream.SendAndClose(&evidencev1.PutBlobResponse{Blob: blobRef(b)})
}

// receive writes the chunks to a file and makes it durable.
func (s *Server) receive(stream evidencev1.BlobService_PutBlobServer, namespace int64, expected string) (digest string, size int64, err error) {
	w, err := s.blobs.Create(namespace)
	if err != nil {
		return "", 0, storeError(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = s.receiveChunk(w, m)
		}
		if err != nil {
			return "", 0, errors.Join(err, storeError(w.Abort()))
		}
	}
	size = w.Size()
	digest, err = w.Commit(expected)
	if errors.Is(err, blob.ErrDigest) {
		return "", 0, errs.New(codes.DataLoss, evidencev1.ErrorReason_ERROR_REASON_BLOB_DIGEST_MISMATCH, expected,
			"the bytes that arrived have another digest than was announced; nothing was stored", "Send the blob again.",
			"expected", expected, "got", digest)
	}
	return digest, size, storeError(err)
}

func (s *Server) receiveChunk(w *blob.Writer, m *evidencev1.PutBlobRequest) error {
	if _, ok := m.GetPart().(*evidencev1.PutBlobRequest_Chunk); !ok || len(m.GetChunk()) > chunkMax {
		return fieldInvalid("chunk", "after the header come chunks of at most 1 MiB")
	}
	if total := w.Size() + int64(len(m.GetChunk())); total > s.limits.BlobMaxBytes {
		return errs.Limit(commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, "blob_max_bytes", s.limits.BlobMaxBytes, total,
			"Store less, or let the operator raise the limit.")
	}
	_, err := w.Write(m.GetChunk())
	return storeError(err)
}

// GetBlob implements BlobService.
func (s *Server) GetBlob(req *evidencev1.GetBlobRequest, stream evidencev1.BlobService_GetBlobServer) error {
	ctx := stream.Context()
	b, err := s.visibleBlob(ctx, req.GetHandle())
	if err != nil {
		return err
	}
	if req.GetOffset() > b.Size {
		return fieldInvalid("offset", "is beyond the blob's end")
	}
	namespace, err := s.store.NamespaceID(ctx, b.Namespace)
	if err != nil {
		return storeError(err)
	}
	if err := stream.Send(&evidencev1.GetBlobResponse{Blob: blobRef(b)}); err != nil {
		return err
	}
	err = s.blobs.Copy(namespace, b.SHA256, b.Size, req.GetOffset(), readChunk, func(piece []byte) error {
		// The message may outlive this call on an in-process channel, the piece does not.
		return stream.Send(&evidencev1.GetBlobResponse{Chunk: bytes.Clone(piece)})
	})
	return s.readError(err, b)
}

// visibleBlob finds a blob that the caller may read: a service or approver any of its namespace; a caller those of the
// whole namespace, and those of a conversation in which it has made calls.
func (s *Server) visibleBlob(ctx context.Context, handle string) (store.Blob, error) {
	v, err := viewerOf(ctx)
	if err != nil {
		return store.Blob{}, err
	}
	missing := notFound(evidencev1.ErrorReason_ERROR_REASON_BLOB_NOT_FOUND, "blob", handle)
	b, err := s.store.Blob(ctx, handle)
	if errors.Is(err, store.ErrNotFound) {
		return b, missing
	}
	if err != nil {
		return b, storeError(err)
	}
	if !v.sees(b.Namespace, v.principal) {
		return b, missing
	}
	if v.principal == "" || b.Conversation == "" {
		return b, nil
	}
	owns, err := s.store.Owns(ctx, b.Namespace, v.principal, b.Conversation)
	if err != nil {
		return b, storeError(err)
	}
	if !owns {
		return b, missing
	}
	return b, nil
}

func (s *Server) readError(err error, b store.Blob) error {
	if !errors.Is(err, blob.ErrCorrupt) {
		return storeError(err)
	}
	name := b.Handle
	if name == "" {
		name = b.SHA256
	}
	s.log.Error("a blob's bytes changed", "blob", name, "sha256", b.SHA256, "dir", s.blobs.Root(), "error", err)
	return errs.WithCause(errs.New(codes.DataLoss, evidencev1.ErrorReason_ERROR_REASON_BLOB_CORRUPT, name,
		"the stored bytes of the blob changed; what was sent so far can't be trusted", "Restore the blob from a backup; its name is its SHA-256.",
		"sha256", b.SHA256), err)
}

func blobRef(b store.Blob) *commonv1.BlobRef {
	return &commonv1.BlobRef{Handle: b.Handle, Sha256: b.SHA256, Size: b.Size, MediaType: b.MediaType}
}

// keepPayload stores bytes of an opening as a blob without a handle.
func (s *Server) keepPayload(ctx context.Context, namespace string, payload []byte) (int64, error) {
	id, err := s.store.NamespaceID(ctx, namespace)
	if err != nil {
		return 0, storeError(err)
	}
	w, err := s.blobs.Create(id)
	if err != nil {
		return 0, storeError(err)
	}
	if _, err := w.Write(payload); err != nil {
		return 0, storeError(errors.Join(err, w.Abort()))
	}
	digest, err := w.Commit("")
	if err != nil {
		return 0, storeError(err)
	}
	b, err := s.store.PutBlob(ctx, store.Blob{Namespace: namespace, SHA256: digest, Size: int64(len(payload))})
	return b.ID, storeError(err)
}

func (s *Server) readPayload(ctx context.Context, id int64) ([]byte, error) {
	b, err := s.store.BlobByID(ctx, id)
	if err != nil {
		return nil, storeError(err)
	}
	namespace, err := s.store.NamespaceID(ctx, b.Namespace)
	if err != nil {
		return nil, storeError(err)
	}
	out := make([]byte, 0, b.Size)
	err = s.blobs.Copy(namespace, b.SHA256, b.Size, 0, readChunk, func(piece []byte) error {
		out = append(out, piece...)
		return nil
	})
	return out, s.readError(err, b)
}

// blobReader lets the rules of a seal read a blob that an opening names.
type blobReader struct {
	ctx       context.Context
	server    *Server
	namespace string
}

// OpenRef implements seal.Blobs.
func (r blobReader) OpenRef(ref *commonv1.BlobRef) (io.ReadCloser, error) {
	b, err := r.server.blobOf(r.ctx, r.namespace, ref)
	if err != nil {
		return nil, err
	}
	id, err := r.server.store.NamespaceID(r.ctx, r.namespace)
	if err != nil {
		return nil, err
	}
	file, err := r.server.blobs.Open(id, b.SHA256)
	return file, r.server.readError(err, b)
}

func fieldInvalid(field, problem string) error {
	return errs.Field(commonv1.ErrorReason_ERROR_REASON_FIELD_INVALID, field, problem, "See the contract of BlobService.")
}
