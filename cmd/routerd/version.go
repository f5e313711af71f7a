package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// versionCommand prints what this binary is.
type versionCommand struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// versionReport is what the command prints as JSON.
type versionReport struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Protocol int    `json:"protocol"` // of the wire contract
}

// Run implements the command.
func (c *versionCommand) Run(a *app) error {
	report := versionReport{Version: "devel", Go: runtime.Version(), Protocol: 1}
	if info, ok := debug.ReadBuildInfo(); ok {
		if v := info.Main.Version; v != "" && v != "(devel)" {
			report.Version = v
		}
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				report.Revision = setting.Value
			}
		}
	}
	if c.JSON {
		return printJSON(a.stdout, report)
	}
	_, err := fmt.Fprintf(a.stdout, "routerd %s (protocol %d, %s)\n", report.Version, report.Protocol, report.Go)
	return err
}
