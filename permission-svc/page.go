package permission

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/errs"
)

const (
	defaultPage = 50
	maxPage     = 1000
)

func pageSize(n int32) int {
	if n <= 0 {
		return defaultPage
	}
	return int(min(n, maxPage))
}

// pageToken names the last entry of a page and the list that it is of.
func pageToken(last string, list ...any) string {
	return base64.RawURLEncoding.EncodeToString([]byte(listDigest(list) + "." + last))
}

// readPageToken is the inverse; a token of another list is refused.
func readPageToken(token string, list ...any) (string, error) {
	if token == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	digest, last, ok := strings.Cut(string(b), ".")
	if err != nil || !ok || digest != listDigest(list) {
		return "", errs.New(codes.InvalidArgument, commonv1.ErrorReason_ERROR_REASON_PAGE_TOKEN_INVALID, "page_token", "the page token is not of this list",
			"Begin again without a token, or keep the filter.")
	}
	return last, nil
}

// readSeqToken is readPageToken for lists that are in the order of numbers; 0 is the begin.
func readSeqToken(token string, list ...any) (int64, error) {
	last, err := readPageToken(token, list...)
	if err != nil || last == "" {
		return 0, err
	}
	n, err := strconv.ParseInt(last, 10, 64)
	if err != nil || n <= 0 {
		return 0, errs.New(codes.InvalidArgument, commonv1.ErrorReason_ERROR_REASON_PAGE_TOKEN_INVALID, "page_token", "the page token is not of this list", "Begin again without a token.")
	}
	return n, nil
}

func listDigest(list []any) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%q", list)))
	return hex.EncodeToString(sum[:6])
}
