#!/usr/bin/env bash
# Installs Sluice as pods on a real node: this machine, with containerd, kubelet and kube-proxy. Times the three commands of the
# README by kustomize and by Helm, then upgrades, rolls back and kills Sluice while Jobs run and others are created.
# Needs root and Debian's packages containerd, runc, containernetworking-plugins, nftables and conntrack.
#
#   JOBS=80       Jobs that run meanwhile, at most 90: a node takes 110 pods
#   KEEP=1        leaves all of it running until Enter is pressed, also after a failure
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
jobs=${JOBS:-80}
repository=registry.internal/sluice
address=10.88.1.1

say() { echo "node: $*" >&2; }
fail() { say "FAILED: $*"; exit 1; }
for program in containerd ctr runc nft conntrack go cargo; do
  command -v "$program" >/dev/null || fail "there is no $program on the PATH"
done
[[ $(id -u) -eq 0 ]] || fail "a node needs root"
! pgrep -x kubelet >/dev/null && ! ip link show cni0 >/dev/null 2>&1 || fail "this machine is a node already"

control=$(tests/cluster/build.sh)/sluice-cluster
helm() { "$helm_program" "$@" 2> >(grep -v 'found symbolic link' >&2); }
helm_program=$(tests/cluster/helm.sh)
kubectl() { "$control" kubectl "$@"; }

# Version 1.34 still takes the containerd and the cgroups of older Linux distributions. A kubelet may be three minor versions
# older than its API server.
programs=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}/node-$(cksum <tests/cluster/1.34/go.sum | cut -d' ' -f1)
if [[ ! -x $programs/kubelet || ! -x $programs/kube-proxy ]]; then
  say "building kubelet and kube-proxy, 5 to 10 minutes the first time"
  module=$(mktemp -d)
  cp tests/cluster/1.34/go.{mod,sum} "$module"
  mkdir -p "$programs"
  (cd "$module" && CGO_ENABLED=0 go build -mod=mod -trimpath -ldflags '-s -w' -o "$programs" \
    k8s.io/kubernetes/cmd/kubelet k8s.io/kubernetes/cmd/kube-proxy)
  rm -rf "$module"
fi
say "building the program of the image"
tests/image.sh >&2
binary=${CARGO_TARGET_DIR:-target}/image/x86_64-unknown-linux-gnu/debug/sluice

unset KUBECONFIG
work=$(mktemp -d)
processes=()
container() { ctr --address "$work/containerd.sock" --namespace k8s.io "$@"; }

# Ends what this script has started, also after a failure.
end() {
  local code=$? one
  set +e
  [[ $code -eq 0 ]] || say "the logs are in $work/logs"
  [[ -z ${KEEP:-} ]] || read -rp "export KUBECONFIG=${KUBECONFIG:-}  Enter ends it. " _
  # With the pods go their networks. What is left is taken apart by hand, the kubelet first since it would start pods again.
  if [[ -n ${KUBECONFIG:-} ]]; then
    kubectl delete namespace sluice-system text vision --ignore-not-found --timeout=120s >/dev/null 2>&1
  fi
  for one in "${processes[@]:1}"; do kill "$one" 2>/dev/null; done
  container tasks list -q 2>/dev/null | while read -r one; do container tasks kill -s KILL "$one"; done
  "$control" down --dir "$work/control" --purge >/dev/null 2>&1
  [[ ${#processes[@]} -eq 0 ]] || kill "${processes[0]}" 2>/dev/null
  sleep 1
  cut -d' ' -f2 /proc/mounts | grep "^$work/" | sort -r | while read -r one; do umount -l "$one"; done
  for one in /run/netns/cni-*; do umount "$one" 2>/dev/null && rm "$one"; done
  for one in cni0 sluice0; do ip link delete "$one" 2>/dev/null; done
  for one in ip ip6; do nft delete table "$one" kube-proxy 2>/dev/null; done
  [[ $code -ne 0 ]] || rm -rf "$work"
}
trap end EXIT
mkdir -p "$work"/{logs,cni,images}

# Starts a process of the node, with a log of its name.
start() {
  local name=$1
  shift
  "$@" >"$work/logs/$name.log" 2>&1 &
  processes+=($!)
}

# Waits until a command succeeds, at most a minute.
until_true() {
  local what=$1 turn
  shift
  for turn in $(seq 240); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.25
  done
  fail "gave up waiting until $what"
}

cat >"$work/containerd.toml" <<TOML
version = 2
root = "$work/containerd"
state = "$work/state"
[grpc]
  address = "$work/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$work/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "sluice.dev/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$work/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
TOML
cat >"$work/cni/10-bridge.conflist" <<JSON
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true,
  "hairpinMode": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
JSON
cat >"$work/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failSwapOn: false
containerRuntimeEndpoint: unix://$work/containerd.sock
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
YAML

# An image of one static program, as the last stage of the Containerfile makes it: IMAGE USER PROGRAM [ARGUMENT]
image() {
  local tree=$work/images/tree name
  rm -rf "$tree"
  mkdir -p "$tree/root"
  name=$(basename "$3")
  cp "$3" "$tree/root/$name"
  chmod 755 "$tree/root/$name"
  tar --owner=0 --group=0 -C "$tree/root" -cf "$tree/layer.tar" "$name"
  cat >"$tree/config.json" <<JSON
{"architecture": "amd64", "os": "linux", "config": {"User": "$2", "Entrypoint": ["/$name"], "Cmd": [${4:+\"$4\"}]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$(sha256sum <"$tree/layer.tar" | cut -d' ' -f1)"]}}
JSON
  echo "[{\"Config\": \"config.json\", \"RepoTags\": [\"$1\"], \"Layers\": [\"layer.tar\"]}]" >"$tree/manifest.json"
  tar -C "$tree" -cf "$tree.tar" manifest.json config.json layer.tar
  container images import "$tree.tar" >/dev/null
}

start containerd containerd --config "$work/containerd.toml"
until_true "containerd answers" container version
CGO_ENABLED=0 go build -o "$work/images/pause" tests/node/pause.go
image sluice.dev/pause:1 65535:65535 "$work/images/pause"
for tag in 0.1.0 0.1.1; do image "$repository:$tag" 65532:65532 "$binary" serve; done

# The API server needs an address that pods reach. kwok would take the node for a simulated one.
ip link add sluice0 type bridge
ip address add $address/32 dev sluice0
ip link set sluice0 up
"$control" up --dir "$work/control" --port 0 --apiserver-flag=--bind-address=0.0.0.0 \
  --apiserver-flag=--advertise-address=$address --apiserver-flag=--endpoint-reconciler-type=lease >/dev/null
"$control" stop kwok --dir "$work/control"
KUBECONFIG=$("$control" kubeconfig admin --dir "$work/control")
export KUBECONFIG
start endpoints "$control" kube-controller-manager --kubeconfig="$KUBECONFIG" --leader-elect=false --secure-port=0 \
  --controllers=endpoints-controller,endpointslice-controller
start kubelet "$programs/kubelet" --kubeconfig="$KUBECONFIG" --config="$work/kubelet.yaml" --hostname-override=node-0 \
  --node-ip=$address --root-dir="$work/kubelet" --cert-dir="$work/pki"
cat >"$work/proxy.yaml" <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: node-0
clientConnection: {kubeconfig: "$KUBECONFIG"}
clusterCIDR: 10.88.0.0/24
conntrack: {maxPerCore: 0}
YAML
start kube-proxy "$programs/kube-proxy" --config="$work/proxy.yaml"
until_true "the node is there" kubectl get node node-0
kubectl wait --for=condition=Ready node/node-0 --timeout=60s >/dev/null
kubectl patch node node-0 --subresource=status --type=merge \
  -p '{"status":{"capacity":{"nvidia.com/gpu":"96"},"allocatable":{"nvidia.com/gpu":"96"}}}' >/dev/null
say "a real node is ready: $(kubectl get node node-0 -o jsonpath='{.status.nodeInfo.containerRuntimeVersion}'), 96 GPUs that it only counts"

# The three commands; the first one is given.
three_commands() {
  local began=$EPOCHREALTIME how=$1
  shift
  "$@"
  kubectl apply -f manifests/examples/team.yaml >/dev/null
  kubectl create -f manifests/examples/over-quota.yaml >/dev/null
  local typed=$EPOCHREALTIME
  until_true "the Job has its Event" explained
  kubectl -n sluice-system rollout status deployment/sluice --timeout=60s >/dev/null
  awk -v how="$how" -v began="$began" -v typed="$typed" -v now="$EPOCHREALTIME" \
    'BEGIN { printf "%s: the three commands took %.1f s, and %.1f s after the first one Sluice says why the Job waits\n", how, typed - began, now - began }'
  kubectl -n vision get events --field-selector reason=Unschedulable -o jsonpath='  {.items[0].message}{"\n"}'
}
explained() {
  kubectl -n vision get events --field-selector reason=Unschedulable -o name | grep -q .
}
by_kustomize() {
  kubectl kustomize manifests | sed "s|registry.example.com/sluice|$repository|" | kubectl apply -f - >/dev/null
}
by_helm() {
  helm install sluice manifests/chart --namespace sluice-system --create-namespace --wait --set image.repository=$repository >/dev/null
}
three_commands kustomize by_kustomize
kubectl delete -k manifests --wait --timeout=120s >/dev/null
kubectl delete namespace vision --timeout=120s >/dev/null
three_commands Helm by_helm

# A Job of one pod: NAMESPACE NAME GPUS
job() {
  cat <<JSON
{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "$1", "name": "$2"}, "spec": {"template": {"spec": {
  "restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [{"name": "main", "image": "sluice.dev/pause:1",
  "imagePullPolicy": "Never", "resources": {"limits": {"nvidia.com/gpu": "$3"}}}]}}}}
JSON
}
pods() { kubectl -n text get pods --field-selector status.phase=Running -o jsonpath='{range .items[*]}{.metadata.uid}{"\n"}{end}' | sort; }
all_run() { [[ $(pods | wc -l) -eq $jobs ]]; }

kubectl apply -f - >/dev/null <<'YAML'
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {name: text}
spec: {quotas: [{guaranteed: {nvidia.com/gpu: 90}}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: text, labels: {sluice.dev/team: text}}
YAML
for number in $(seq "$jobs"); do job text "run-$number" 1; done | kubectl create -f - >/dev/null
until_true "$jobs Jobs run" all_run
pods >"$work/before"

# Jobs that fit nowhere. The webhook has seen a Job where it has the label of its team.
create() {
  local number=0
  while [[ ! -e $work/enough ]]; do
    number=$((number + 1))
    job text "wait-$number" 40 | kubectl create -f - -o jsonpath='{.spec.suspend} {.metadata.labels.sluice\.dev/team}{"\n"}' ||
      echo refused
  done
}
create >"$work/created" 2>&1 &
creator=$!
helm upgrade sluice manifests/chart --namespace sluice-system --wait --set image.repository=$repository --set image.tag=0.1.1 >/dev/null
sleep 3
helm rollback sluice --namespace sluice-system --wait >/dev/null
sleep 3
pkill -KILL -f '^/sluice serve' || fail "no replica runs"
sleep 5
touch "$work/enough"
wait $creator
kubectl -n sluice-system rollout status deployment/sluice --timeout=60s >/dev/null
pods >"$work/after"
cmp -s "$work/before" "$work/after" || fail "not the same $jobs pods run"
! grep -v '^true' "$work/created" || fail "a Job was refused or not held"
echo "upgrade, rollback and a kill of both replicas: the same $jobs Jobs run, $(wc -l <"$work/created") were created meanwhile, all held, $(grep -vc 'text$' "$work/created") of them by the policies alone"
