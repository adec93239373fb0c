// Package store keeps what evidence-svc knows: claims, receipts with their openings, blobs' names, keys.
package store

import (
	"context"
	"crypto/ed25519"
	"errors"
	"time"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
)

// ErrNotFound is what a look-up answers for nothing.
var ErrNotFound = errors.New("not found")

// Taken is the error of a claim or seal that something was faster than. Receipt is empty while the winner has not
// sealed.
type Taken struct {
	Receipt  string
	Executor string
}

// Error names the winner.
func (t *Taken) Error() string { return "the call is taken by " + t.Executor + " " + t.Receipt }

// Claim is a durable claim.
type Claim struct {
	ID        int64 // set by the store
	Namespace string
	Call      string
	Tool      string
	Executor  string
	WritID    string
	Decision  string // its id
	Cause     string
	TraceID   string
	Claimed   time.Time
	Writ      string // empty once erased
	Receipt   string // the receipt's name, once sealed
}

// Receipt is a sealed receipt. What the envelopes say is not repeated but where it is searched for.
type Receipt struct {
	ID               int64 // set by the store
	Sequence         int64 // set by the store: from 1 in its namespace, without gaps
	Namespace        string
	Name             string // "r_…"
	Kind             evidencev1.ReceiptKind
	Call             string
	State            commonv1.OutcomeState
	Tool             string
	Principal        string
	Conversation     string
	Card             string
	TraceID          string
	Sealed           time.Time
	Digest           [32]byte // SHA-256 of Statement
	Statement        []byte
	Countersignature []byte
	Count            int64 // how many identical ones it stands for
}

// Opening is the erasable side of a receipt.
type Opening struct {
	Body      []byte // writ.evidence.v1.Opening without what lies in a blob
	Arguments int64  // blob, 0 where the bytes are in Body
	Result    int64
}

// Sealing is one Seal.
type Sealing struct {
	Receipt Receipt
	Opening Opening
	// Claim is the durable claim that the receipt ends, 0 for none.
	Claim int64
	// TakesClaim: the call must not have been claimed.
	TakesClaim bool
}

// Blob is immutable bytes of a namespace.
type Blob struct {
	ID           int64
	Namespace    string
	SHA256       string
	Size         int64
	Handle       string
	Conversation string // empty: the whole namespace
	MediaType    string
}

// Filter chooses receipts. Empty fields choose all.
type Filter struct {
	Namespace    string
	Principal    string
	Turn         string
	Conversation string
	Tool         string
	State        commonv1.OutcomeState
	Kind         evidencev1.ReceiptKind
	Before       int64 // only with a lower sequence; 0: from the newest
	Limit        int
}

// Key is a public key that receipts are verified with.
type Key struct {
	ID      string
	Service string
	Public  ed25519.PublicKey
}

// Store is what an engine does. Whatever writes returns after the write is durable, and every write is one commit.
type Store interface {
	// Secret returns the store's own random secret of 32 bytes, the same one for ever.
	Secret(ctx context.Context) ([]byte, error)
	// Claim writes the claim and returns its id, or *Taken.
	Claim(ctx context.Context, c Claim) (int64, error)
	// OpenClaims returns the claims without a receipt, oldest first.
	OpenClaims(ctx context.Context) ([]Claim, error)
	// FindClaim returns the claim of a call, or ErrNotFound.
	FindClaim(ctx context.Context, namespace, call string) (Claim, error)
	// Seal writes receipt and opening and ends the claim, and returns the receipt with ID and Sequence; *Taken when the
	// call has ended, or was claimed where the sealing takes the claim, or the same bytes about no call are sealed.
	Seal(ctx context.Context, s Sealing) (Receipt, error)
	// Repeat counts an identical refusal once more.
	Repeat(ctx context.Context, receipt int64, at time.Time) error
	// Receipt returns a receipt by its name, in whatever namespace, or ErrNotFound.
	Receipt(ctx context.Context, name string) (Receipt, error)
	// ReceiptOfCall returns the receipt that ended the call, else its newest refusal, else ErrNotFound. namespace "" is
	// any.
	ReceiptOfCall(ctx context.Context, namespace, call string) (Receipt, error)
	// Ended returns the name of the receipt that ended the call, "" while it has not ended. It is on the path of every read.
	Ended(ctx context.Context, namespace, call string) (receipt string, err error)
	// ReceiptOfDigest returns the refusal or provider's start over exactly these envelope bytes, or ErrNotFound.
	ReceiptOfDigest(ctx context.Context, digest [32]byte) (Receipt, error)
	// Opening returns the opening of a receipt, or ErrNotFound once it is erased.
	Opening(ctx context.Context, receipt int64) (Opening, error)
	// List returns receipts, newest first.
	List(ctx context.Context, f Filter) ([]Receipt, error)
	// ReceiptsOf returns at most limit receipts of a trace ("trace") or a card ("card"), newest first.
	ReceiptsOf(ctx context.Context, what, name string, limit int) ([]Receipt, error)
	// Owns tells whether the principal has a receipt in the conversation.
	Owns(ctx context.Context, namespace, principal, conversation string) (bool, error)
	// PutBlob names bytes that are durable already, and returns the blob with its handle.
	PutBlob(ctx context.Context, b Blob) (Blob, error)
	// Blob returns a blob by its handle, or ErrNotFound.
	Blob(ctx context.Context, handle string) (Blob, error)
	// BlobByID returns a blob without a handle, or ErrNotFound.
	BlobByID(ctx context.Context, id int64) (Blob, error)
	// KeepKeys remembers public keys.
	KeepKeys(ctx context.Context, keys []Key, at time.Time) error
	// Keys returns every key that was ever kept.
	Keys(ctx context.Context) ([]Key, error)
	// NamespaceID is the number of a namespace, which the file driver uses as a folder.
	NamespaceID(ctx context.Context, namespace string) (int64, error)
	// Path is where the store lies.
	Path() string
	// Close closes it.
	Close() error
}
