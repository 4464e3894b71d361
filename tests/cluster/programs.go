package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// programs are the parts of Kubernetes in this binary. Each runs in a process of its own, because they keep
// feature gates, metrics and signal handlers in process-wide variables. Building a command already changes
// those, so only the chosen one is built. All of them read os.Args.
var programs = map[string]func() int{
	"etcd":                    runEtcd,
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllers.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubectl":                 runKubectl,
}

func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints and exits like kubectl does
	}
	return 0
}

// runEtcd serves one etcd member that never waits for the disk: a crash of the machine may lose data, a crash
// of the process does not.
func runEtcd() int {
	flags := pflag.NewFlagSet("etcd", pflag.ExitOnError)
	data := flags.String("data-dir", "", "directory of the data")
	client := flags.String("client-url", "", "URL to serve clients on")
	peer := flags.String("peer-url", "", "URL to serve other members on")
	flags.Parse(os.Args[1:])

	if err := serveEtcd(*data, *client, *peer); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		return 1
	}
	return 0
}

func serveEtcd(data, client, peer string) error {
	clientURL, err := url.Parse(client)
	if err != nil {
		return err
	}
	peerURL, err := url.Parse(peer)
	if err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Dir = data
	config.ListenClientUrls = []url.URL{*clientURL}
	config.AdvertiseClientUrls = config.ListenClientUrls
	config.ListenPeerUrls = []url.URL{*peerURL}
	config.AdvertisePeerUrls = config.ListenPeerUrls
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.UnsafeNoFsync = true
	config.LogLevel = "warn"
	// With a limit of zero every request would be logged as slow.
	config.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	config.QuotaBackendBytes = 8 << 30
	config.AutoCompactionMode = "revision"
	config.AutoCompactionRetention = "100000"

	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer server.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case err := <-server.Err():
		return err
	case <-stop:
		return nil
	}
}
