package cli

import (
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
			var rows [][]string
			for _, c := range tokens.Credentials() {
				roles := ""
				for i, r := range c.Roles {
					if i > 0 {
						roles += ", "
					}
					roles += word(r, "ROLE_")
				}
				rows = append(rows, []string{c.ID, c.Principal.GetId(), word(c.Principal.GetKind(), "PRINCIPAL_KIND_"), word(c.MaxMode, "MODE_"), roles})
			}
			a.Table([]string{"CREDENTIAL", "PRINCIPAL", "KIND", "HIGHEST MODE", "ROLES"}, rows)
			return nil
		},
	})
	return cmd
}
