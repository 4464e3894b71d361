// Command sluice-cluster is a Kubernetes control plane in one binary, together
// with the tool that runs it on this machine. README.md describes its use.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const usage = `Runs a real Kubernetes control plane with simulated nodes on this machine.

Usage: sluice-cluster COMMAND [--name NAME | --dir DIR] [options]

  up         start the cluster; print the KUBECONFIG line to export
               --port BASE            first of three ports (0: free ones; default 16443)
               --fresh                delete the data of earlier runs
               --audit                log reads too, not only writes
               --pod-groups           serve PodGroups, and schedule gangs by them (alpha)
               --apiserver-flag FLAG  one more flag for kube-apiserver; repeatable
  down       stop the cluster; --purge also deletes its directory
  status     list the processes of the cluster; exit code 1 unless all run
  env        print the KUBECONFIG line of a cluster
  kubeconfig [USER]   print the path of a kubeconfig: admin (default), alice,
             raw (the load generator of benchmarks), sluice, kwok
  start, stop, restart COMPONENT
             one of etcd, kube-apiserver, kube-controller-manager,
             kube-scheduler, kwok
  kubectl    the usual kubectl; without KUBECONFIG it talks to the default cluster

The components themselves are sub-commands as well (sluice-cluster kube-apiserver --help).
`

func main() {
	if len(os.Args) < 2 || strings.TrimLeft(os.Args[1], "-") == "help" {
		fmt.Print(usage)
		return
	}
	name, args := os.Args[1], os.Args[2:]
	if name == "kubectl" {
		useDefaultCluster()
	}
	if run, ok := programs[name]; ok {
		os.Args = append([]string{name}, args...)
		os.Exit(run())
	}
	if err := runTool(name, args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Print(usage)
			return
		}
		fmt.Fprintf(os.Stderr, "sluice-cluster %s: %v\n", name, err)
		os.Exit(exitCode(err))
	}
}

// usageError marks an error of the caller's arguments; it exits with code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func exitCode(err error) int {
	if errors.As(err, &usageError{}) {
		return 2
	}
	return 1
}

func runTool(command string, args []string) error {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed by main
	name := flags.String("name", "sluice", "name of the cluster")
	dir := flags.String("dir", "", "directory of the cluster")

	var up upOptions
	var purge bool
	switch command {
	case "up":
		flags.IntVar(&up.port, "port", unsetPort, "first of three ports")
		flags.BoolVar(&up.fresh, "fresh", false, "delete the data of earlier runs")
		flags.BoolVar(&up.auditReads, "audit", false, "log reads too")
		flags.BoolVar(&up.podGroups, "pod-groups", false, "serve PodGroups")
		flags.Func("apiserver-flag", "one more flag for kube-apiserver", func(value string) error {
			up.apiserverFlags = append(up.apiserverFlags, value)
			return nil
		})
	case "down":
		flags.BoolVar(&purge, "purge", false, "delete the directory")
	case "status", "env", "kubeconfig", "start", "stop", "restart":
	default:
		return usageError{fmt.Errorf("no such command; `sluice-cluster help` lists them")}
	}
	operands, err := parseFlags(flags, args)
	if err != nil {
		return err
	}
	c, err := openCluster(*name, *dir)
	if err != nil {
		return err
	}

	operand := ""
	switch {
	case len(operands) == 1 && command != "up" && command != "down" && command != "status" && command != "env":
		operand = operands[0]
	case len(operands) > 0:
		return usageError{fmt.Errorf("unexpected argument %q", operands[0])}
	}
	switch command {
	case "up":
		return c.up(up)
	case "down":
		return c.down(purge)
	case "status":
		return c.status()
	case "env":
		return c.printEnv()
	case "kubeconfig":
		return c.printKubeconfig(operand)
	default:
		return c.control(command, operand)
	}
}

// parseFlags accepts flags before and after operands.
func parseFlags(flags *flag.FlagSet, args []string) (operands []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, usageError{err}
		}
		if flags.NArg() == 0 {
			return operands, nil
		}
		operands = append(operands, flags.Arg(0))
		args = flags.Args()[1:]
	}
}

// useDefaultCluster lets kubectl find the default cluster without options.
func useDefaultCluster() {
	if os.Getenv("KUBECONFIG") != "" {
		return
	}
	path := filepath.Join(defaultDir("sluice"), "admin.kubeconfig")
	if _, err := os.Stat(path); err == nil {
		os.Setenv("KUBECONFIG", path)
	}
}
