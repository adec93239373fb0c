package cli

import (
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/writ-dev/writ/cmd/writ/internal/client"
	"github.com/writ-dev/writ/internal/auth"
)

func (a *app) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "the credentials of this home"}
	cmd.AddCommand(&cobra.Command{
		Use: "list", Short: "list credentials; secrets are never shown", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			f, err := client.Find(a.homeFlag, a.addrFlag)
			if err != nil {
				return err
			}
			tokens, err := auth.LoadTokens(f.Home.CredentialsFile())
			if err != nil {
				return err
			}
			if a.json {
				return a.tokensJSON(tokens.Credentials())
			}
			var rows [][]string
			for _, c := range tokens.Credentials() {
				rows = append(rows, []string{c.ID, c.Principal.GetId(), word(c.Principal.GetKind(), "PRINCIPAL_KIND_"), word(c.MaxMode, "MODE_"), strings.Join(rolesOf(c), ", ")})
			}
			a.Table([]string{"CREDENTIAL", "PRINCIPAL", "KIND", "HIGHEST MODE", "ROLES"}, rows)
			return nil
		},
	})
	return cmd
}

func rolesOf(c auth.Credential) (roles []string) {
	for _, r := range c.Roles {
		roles = append(roles, word(r, "ROLE_"))
	}
	return roles
}

func (a *app) tokensJSON(credentials []auth.Credential) error {
	enc := json.NewEncoder(a.Out)
	for _, c := range credentials {
		row := struct {
			ID        string   `json:"id"`
			Principal string   `json:"principal"`
			Kind      string   `json:"kind"`
			MaxMode   string   `json:"max_mode"`
			Roles     []string `json:"roles"`
			Namespace string   `json:"namespace"`
		}{c.ID, c.Principal.GetId(), word(c.Principal.GetKind(), "PRINCIPAL_KIND_"), word(c.MaxMode, "MODE_"), rolesOf(c), c.Namespace}
		if err := enc.Encode(row); err != nil {
			return err
		}
	}
	return nil
}
