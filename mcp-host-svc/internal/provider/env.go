package provider

import "sort"

// Base is what every server's environment begins with. Empty values are left out;
// nothing else is inherited.
type Base struct {
	Path, Home, Lang, TempDir, User, NpmCache string
}

// Environment is the whole environment of a server: the base, then what its
// connector sets itself, then what the host adds. It is sorted, so that a start is
// reproducible.
func Environment(base Base, own map[string]string, added map[string]string) []string {
	all := map[string]string{
		"PATH": base.Path, "HOME": base.Home, "LANG": base.Lang, "TMPDIR": base.TempDir,
		"USER": base.User, "npm_config_cache": base.NpmCache,
	}
	for name, v := range all {
		if v == "" {
			delete(all, name)
		}
	}
	if base.NpmCache != "" {
		all["npm_config_update_notifier"] = "false"
	}
	for name, v := range own {
		all[name] = v
	}
	for name, v := range added {
		if v != "" {
			all[name] = v
		}
	}
	out := make([]string, 0, len(all))
	for name, v := range all {
		out = append(out, name+"="+v)
	}
	sort.Strings(out)
	return out
}
