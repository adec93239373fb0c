package auth

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/home"
)

// Names of the embedded credentials, which are also the names of their token files.
const (
	CallerToken   = "caller"
	ApproverToken = "approver"
)

// DefaultNamespace is the namespace of the embedded form.
const DefaultNamespace = "default"

// tokenPrefix makes a token recognisable to secret scanners.
const tokenPrefix = "writ_"

// StaticTokens authenticates the tokens of a table in a file. It holds hashes only.
type StaticTokens struct{ entries []tokenEntry }

type tokenEntry struct {
	hash [sha256.Size]byte
	cred Credential
}

// NewToken makes a token of 256 random bits.
func NewToken() string {
	var b [32]byte
	rand.Read(b[:])
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// Authenticate finds the credential of a token. Its time depends on neither the token nor the place in the table.
func (s *StaticTokens) Authenticate(_ context.Context, bearer string) (Credential, error) {
	sum := sha256.Sum256([]byte(bearer))
	found := -1
	for i := range s.entries {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], s.entries[i].hash[:]), i, found)
	}
	if found < 0 {
		return Credential{}, ErrUnknownToken
	}
	return s.entries[found].cred, nil
}

// Credentials lists what the table holds.
func (s *StaticTokens) Credentials() []Credential {
	creds := make([]Credential, len(s.entries))
	for i, e := range s.entries {
		creds[i] = e.cred
	}
	return creds
}

// table is credentials.json.
type tokenTable struct {
	Version     int        `json:"version"`
	Credentials []tokenRow `json:"credentials"`
}

type tokenRow struct {
	ID             string   `json:"id"`
	SHA256         string   `json:"sha256"` // of the token, lower-case hex
	Principal      string   `json:"principal"`
	Kind           string   `json:"kind"`
	Roles          []string `json:"roles"`
	Namespace      string   `json:"namespace"`
	Agents         []string `json:"agents"`
	MaxMode        string   `json:"max_mode"`
	WorkspaceRoots []string `json:"workspace_roots"`
}

// LoadTokens reads a credentials table. A table that others can read, or with anything in it that is not understood,
// is refused whole: half a table would be a different policy.
func LoadTokens(path string) (*StaticTokens, error) {
	b, err := home.ReadPrivate(path)
	if err != nil {
		return nil, err
	}
	var t tokenTable
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&t); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: something follows the table", path)
	}
	if t.Version != 1 {
		return nil, fmt.Errorf("%s: version %d, this program knows 1", path, t.Version)
	}
	s := &StaticTokens{}
	ids, hashes := map[string]bool{}, map[string]bool{}
	for i, row := range t.Credentials {
		e, err := row.parse()
		if err == nil && (ids[row.ID] || hashes[row.SHA256]) {
			err = errors.New("its id or its token is in the table twice")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: credential %d (%q): %w", path, i, row.ID, err)
		}
		ids[row.ID], hashes[row.SHA256] = true, true
		s.entries = append(s.entries, e)
	}
	return s, nil
}

func (r tokenRow) parse() (e tokenEntry, err error) {
	sum, err := hex.DecodeString(r.SHA256)
	if err != nil || len(sum) != sha256.Size {
		return e, errors.New("sha256 is not 64 hex digits")
	}
	copy(e.hash[:], sum)
	if r.ID == "" || r.Principal == "" {
		return e, errors.New("id or principal is empty")
	}
	kind, err := enum(r.Kind, "PRINCIPAL_KIND_", commonv1.PrincipalKind_value)
	if err != nil {
		return e, fmt.Errorf("kind: %w", err)
	}
	mode, err := enum(r.MaxMode, "MODE_", commonv1.Mode_value)
	if err != nil {
		return e, fmt.Errorf("max_mode: %w", err)
	}
	e.cred = Credential{
		ID: r.ID, Namespace: r.Namespace, Agents: r.Agents, MaxMode: commonv1.Mode(mode), WorkspaceRoots: r.WorkspaceRoots,
		Principal: &commonv1.Principal{Id: r.Principal, Kind: commonv1.PrincipalKind(kind), Namespace: r.Namespace},
	}
	for _, name := range r.Roles {
		role, err := enum(name, "ROLE_", commonv1.Role_value)
		if err != nil {
			return e, fmt.Errorf("roles: %w", err)
		}
		e.cred.Roles = append(e.cred.Roles, commonv1.Role(role))
	}
	return e, e.cred.consistent()
}

// consistent refuses rows that would undo a rule of the design: only people decide, only services serve all tenants.
func (c Credential) consistent() error {
	kind := c.Principal.GetKind()
	switch {
	case len(c.Roles) == 0:
		return errors.New("it has no roles")
	case c.Has(commonv1.Role_ROLE_APPROVER) && kind != commonv1.PrincipalKind_PRINCIPAL_KIND_HUMAN:
		return errors.New("only a human may have the role approver")
	case c.Has(commonv1.Role_ROLE_SERVICE) != (kind == commonv1.PrincipalKind_PRINCIPAL_KIND_SERVICE):
		return errors.New("the role service and the kind service go together")
	case c.Namespace == "" && kind != commonv1.PrincipalKind_PRINCIPAL_KIND_SERVICE:
		return errors.New("it has no namespace")
	}
	for _, root := range c.WorkspaceRoots {
		if root != Any && !filepath.IsAbs(root) {
			return fmt.Errorf("workspace root %q is not an absolute path", root)
		}
	}
	return nil
}

func enum(word, prefix string, values map[string]int32) (int32, error) {
	v, ok := values[prefix+strings.ToUpper(word)]
	if !ok || v == 0 {
		return 0, fmt.Errorf("%q is unknown", word)
	}
	return v, nil
}

// EmbeddedTokens loads the tokens of a home. Where there are none it makes the two of the embedded form: the caller's,
// which an agent gets, and the approver's, which belongs to the person at this machine. What they may do stands in
// credentials.json from then on.
func EmbeddedTokens(h *home.Home) (*StaticTokens, error) {
	if _, err := os.Lstat(h.CredentialsFile()); errors.Is(err, os.ErrNotExist) {
		if err := makeEmbedded(h); err != nil {
			return nil, fmt.Errorf("make the embedded credentials: %w", err)
		}
	}
	return LoadTokens(h.CredentialsFile())
}

func makeEmbedded(h *home.Home) error {
	caller, err := tokenFile(h.TokenFile(CallerToken))
	if err != nil {
		return err
	}
	approver, err := tokenFile(h.TokenFile(ApproverToken))
	if err != nil {
		return err
	}
	table := tokenTable{Version: 1, Credentials: []tokenRow{
		{
			ID: CallerToken, SHA256: hashOf(caller), Principal: "caller", Kind: "agent", Roles: []string{"caller"},
			Namespace: DefaultNamespace, Agents: []string{Any}, MaxMode: "auto", WorkspaceRoots: []string{Any},
		},
		{
			ID: ApproverToken, SHA256: hashOf(approver), Principal: userName(), Kind: "human",
			Roles:     []string{"caller", "approver", "operator"},
			Namespace: DefaultNamespace, Agents: []string{Any}, MaxMode: "bypass", WorkspaceRoots: []string{Any},
		},
	}}
	b, err := json.MarshalIndent(table, "", "  ")
	if err != nil {
		return err
	}
	// The table is the last file: a start that was cut short before it finds its tokens again and uses them.
	if err := home.CreatePrivate(h.CredentialsFile(), append(b, '\n')); !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

func tokenFile(path string) (string, error) {
	token, err := ReadToken(path)
	if !errors.Is(err, os.ErrNotExist) {
		return token, err
	}
	token = NewToken()
	if err := home.CreatePrivate(path, []byte(token+"\n")); !errors.Is(err, os.ErrExist) {
		return token, err
	}
	return ReadToken(path) // another process was faster
}

// ReadToken reads a token file. One that others can read is refused.
func ReadToken(path string) (string, error) {
	b, err := home.ReadPrivate(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if token == "" || len(token) > maxBearer || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%s holds no token", path)
	}
	return token, nil
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func userName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "owner"
}
