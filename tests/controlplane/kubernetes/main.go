// One binary for all Kubernetes programs. Its name when it is called selects the program.
//
// This file has the programs of the demo; the build tag "every" adds the others (every.go). It is one binary because the
// programs share nearly all of their code and linking takes a large part of the time.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	_ "time/tzdata" // as the original mains do, for CronJob's time zones

	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// programs maps the name of a program to its main function, which returns the exit code.
var programs = map[string]func() int{
	"etcd":           etcd,
	"kube-apiserver": func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kubectl":        kubectl,
}

func main() {
	name := filepath.Base(os.Args[0])
	program, known := programs[name]
	if !known {
		fmt.Fprintf(os.Stderr, "%q is unknown: must be one of %v\n", name, slices.Sorted(maps.Keys(programs)))
		os.Exit(2)
	}
	os.Exit(program())
}

func etcd() int {
	etcdmain.Main(os.Args) // exits when it fails
	return 0
}

func kubectl() int {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints as kubectl does, and exits
	}
	return 0
}
