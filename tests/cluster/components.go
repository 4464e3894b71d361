package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

//go:embed stages.yaml
var stages string

// component is one process of the control plane.
type component struct {
	name string
	argv func(c *cluster, self string) []string
	// patience is the longest time to end after SIGTERM. kube-apiserver waits for its clients, up to a minute.
	patience time.Duration
}

// components in the order in which they start.
var components = []component{
	{"etcd", etcdCommand, 10 * time.Second},
	{"kube-apiserver", apiserverCommand, 5 * time.Second},
	{"kube-controller-manager", controllerManagerCommand, 10 * time.Second},
	{"kube-scheduler", schedulerCommand, 10 * time.Second},
	{"kwok", kwokCommand, 10 * time.Second},
}

func componentNamed(name string) (component, error) {
	for _, component := range components {
		if component.name == name {
			return component, nil
		}
	}
	return component{}, usageError{fmt.Errorf("no component %q; they are etcd, kube-apiserver, "+
		"kube-controller-manager, kube-scheduler and kwok", name)}
}

func etcdCommand(c *cluster, self string) []string {
	return []string{self, "etcd",
		"--data-dir=" + c.path("etcd"),
		fmt.Sprintf("--client-url=http://127.0.0.1:%d", c.EtcdPort),
		fmt.Sprintf("--peer-url=http://127.0.0.1:%d", c.EtcdPeerPort),
	}
}

func apiserverCommand(c *cluster, self string) []string {
	argv := []string{self, "kube-apiserver",
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", c.EtcdPort),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.Port),
		"--tls-cert-file=" + c.path("kube-apiserver.crt"),
		"--tls-private-key-file=" + c.path("kube-apiserver.key"),
		"--cert-dir=" + c.path("certificates"),
		"--token-auth-file=" + c.path("tokens.csv"),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.path("service-accounts.key"),
		"--service-account-signing-key-file=" + c.path("service-accounts.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--endpoint-reconciler-type=none", // no traffic comes through its Service
		"--allow-privileged=true",
		"--audit-policy-file=" + c.path("audit-policy.yaml"),
		"--audit-log-path=" + c.path("audit.log"),
		"--audit-log-maxsize=4096", // MB; a rotated log would falsify counts
	}
	if c.PodGroups {
		argv = append(argv, podGroupGates, "--runtime-config=scheduling.k8s.io/v1alpha2=true")
	}
	return append(argv, c.APIServerFlags...)
}

// podGroupGates enables PodGroups, an alpha feature, in a component.
const podGroupGates = "--feature-gates=GenericWorkload=true,GangScheduling=true"

// enabledControllers are those that Jobs, pods, nodes and user accounts depend on. Volumes, services and
// certificates are left out, to start faster.
var enabledControllers = []string{
	"clusterrole-aggregation-controller", "cronjob-controller", "daemonset-controller",
	"deployment-controller", "disruption-controller", "garbage-collector-controller",
	"job-controller", "namespace-controller", "node-lifecycle-controller",
	"pod-garbage-collector-controller", "replicaset-controller", "resourceclaim-controller",
	"resourcequota-controller",
	"root-ca-certificate-publisher-controller", "serviceaccount-controller",
	"serviceaccount-token-controller", "statefulset-controller", "taint-eviction-controller",
	"ttl-after-finished-controller", "validatingadmissionpolicy-status-controller",
}

func controllerManagerCommand(c *cluster, self string) []string {
	kubeconfig := c.kubeconfig("kube-controller-manager")
	controllers := strings.Join(enabledControllers, ",")
	if c.PodGroups {
		controllers += ",podgroup-protection-controller"
	}
	argv := []string{self, "kube-controller-manager",
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--service-account-private-key-file=" + c.path("service-accounts.key"),
		"--root-ca-file=" + c.path("ca.crt"),
		"--use-service-account-credentials=true",
		"--controllers=" + controllers,
		"--leader-elect=false",
		"--secure-port=0",
		// The defaults would make this the slowest component.
		"--kube-api-qps=5000",
		"--kube-api-burst=10000",
		"--concurrent-job-syncs=10",
		fmt.Sprintf("--node-monitor-grace-period=%ds", nodeLeaseSeconds),
	}
	if c.PodGroups {
		argv = append(argv, podGroupGates)
	}
	return argv
}

func schedulerCommand(c *cluster, self string) []string {
	kubeconfig := c.kubeconfig("kube-scheduler")
	argv := []string{self, "kube-scheduler",
		"--config=" + c.path("kube-scheduler.yaml"),
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--secure-port=0",
	}
	if c.PodGroups {
		argv = append(argv, podGroupGates)
	}
	return argv
}

func kwokCommand(c *cluster, self string) []string {
	return []string{filepath.Join(filepath.Dir(self), "kwok"),
		"--kubeconfig=" + c.kubeconfig("kwok"),
		"--config=" + c.path("kwok.yaml"),
		"--v=WARN",
	}
}

// nodeLeaseSeconds is the time for which a node counts as alive after its last heartbeat. kwok renews it four
// times in that time; a much shorter time would keep a small machine busy with the heartbeats of hundreds of
// nodes.
const nodeLeaseSeconds = 120

const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: %q
  qps: 5000
  burst: 10000
leaderElection:
  leaderElect: false
`

// Without workers that list the pods of a node when kwok comes to manage it, kwok never learns of the pods that were
// bound before: to a node that is made again, or before kwok itself starts again.
const kwokConfig = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  manageAllNodes: true
  nodeLeaseDurationSeconds: %d
  nodeLeaseParallelism: 8
  nodePlayStageParallelism: 16
  podPlayStageParallelism: 32
  podsOnNodeSyncParallelism: 4
---
`

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [%s]
- level: None
`

// writeConfigs writes the files named in the commands above.
func (c *cluster) writeConfigs() error {
	verbs := "create, update, patch, delete, deletecollection"
	if c.AuditReads {
		verbs += ", get, list, watch"
	}
	for file, content := range map[string]string{
		"kube-scheduler.yaml": fmt.Sprintf(schedulerConfig, c.kubeconfig("kube-scheduler")),
		"kwok.yaml":           fmt.Sprintf(kwokConfig, nodeLeaseSeconds) + stages,
		"audit-policy.yaml":   fmt.Sprintf(auditPolicy, verbs),
	} {
		if err := writeFile(c.path(file), []byte(content)); err != nil {
			return err
		}
	}
	return os.MkdirAll(c.path("logs"), 0o755)
}
