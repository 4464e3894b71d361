#!/usr/bin/env bash
# Checks the features of the local cluster, on clusters of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

cluster=$(./build.sh)/sluice-cluster
scratch=$(mktemp -d)
one=$scratch/one two=$scratch/two
cleanup() {
  for dir in "$one" "$two"; do "$cluster" down --purge --dir "$dir" || true; done
  rm -rf "$scratch"
}
trap cleanup EXIT

check() { echo "smoke: $*"; }
fail() { echo "smoke: FAILED: $*" >&2; exit 1; }
k() { "$cluster" kubectl --kubeconfig "$one/admin.kubeconfig" "$@"; }
value() { k get "$1" -o "jsonpath={$2}"; }
# until_equal SECONDS WANTED OBJECT JSONPATH
until_equal() {
  local end=$((SECONDS + $1)) got
  until got=$(value "$3" "$4"); [[ $got == "$2" ]]; do
    ((SECONDS < end)) || fail "$3 $4 is '$got', not '$2', after $1 s"
    sleep 0.1
  done
}
# job NAME PODS ANNOTATIONS [SPEC FIELDS]
job() {
  k create -f - >/dev/null <<EOF
apiVersion: batch/v1
kind: Job
metadata: {name: $1}
spec:
  parallelism: $2
  completions: $2
  backoffLimit: 0
  ${4:-}
  template:
    metadata: {annotations: {$3}}
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 30
      containers:
      - name: main
        image: program
        resources: {limits: {nvidia.com/gpu: 1}}
EOF
}

"$cluster" up --dir "$one" --port 0 >/dev/null
for node in gpu-0 spare; do
  k create -f - >/dev/null <<EOF
apiVersion: v1
kind: Node
metadata: {name: $node}
status:
  capacity: {nvidia.com/gpu: 10, cpu: 64}
  allocatable: {nvidia.com/gpu: 10, cpu: 60}
EOF
done
ready='.status.conditions[?(@.type=="Ready")].status'
until_equal 10 True node/gpu-0 "$ready"
[[ $(value node/gpu-0 .status.allocatable) == *'"cpu":"60"'*'"nvidia.com/gpu":"10"'* ]] ||
  fail "the node's resources changed: $(value node/gpu-0 .status)"
node_since=$SECONDS

check "a Job with pods of 2 s completes"
job short 3 'simulate.sluice.dev/duration: 2s'
until_equal 10 3 job/short .status.ready
until_equal 10 True job/short '.status.conditions[?(@.type=="Complete")].status'

check "an exit code other than 0 fails the Job"
job bad 1 'simulate.sluice.dev/duration: 100ms, simulate.sluice.dev/exit-code: "3"'
until_equal 10 True job/bad '.status.conditions[?(@.type=="Failed")].status'
exit_codes='.items[*].status.containerStatuses[*].state.terminated.exitCode'
[[ $(k get pods -l job-name=bad -o "jsonpath={$exit_codes}") == 3 ]] || fail "the exit code is not 3"

check "pods of a suspended Job end gracefully, and the Job can resume"
job long 3 'simulate.sluice.dev/termination: 3s'
until_equal 10 3 job/long .status.ready
k patch job long -p '{"spec":{"suspend":true}}' >/dev/null
until_equal 5 3 job/long .status.terminating
terminating_since=$SECONDS
until_equal 10 0 job/long .status.terminating
((SECONDS - terminating_since >= 2)) || fail "the pods terminated too early"
[[ -z $(value job/long .status.failed) ]] || fail "suspending counted as a failure"
k patch job long -p '{"spec":{"suspend":false}}' >/dev/null
until_equal 10 3 job/long .status.ready

check "a deleted pod of a running Job counts as failed, with exit code 143"
job policed 1 '' 'podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [143]}}]}'
until_equal 10 1 job/policed .status.ready
k delete pod -l job-name=policed --wait=false >/dev/null
until_equal 10 PodFailurePolicy job/policed '.status.conditions[?(@.type=="Failed")].reason'

# (With every node lost, Kubernetes would blame itself and taint none.)
check "a node can be lost, and return"
k annotate node gpu-0 simulate.sluice.dev/down=true >/dev/null
until_equal 10 Unknown node/gpu-0 "$ready"
until_equal 10 'node.kubernetes.io/unreachable' node/gpu-0 '.spec.taints[?(@.effect=="NoExecute")].key'
k annotate node gpu-0 simulate.sluice.dev/down- >/dev/null
until_equal 10 True node/gpu-0 "$ready"
until_equal 10 '' node/gpu-0 .spec.taints

check "alice may do nothing, sluice is its ServiceAccount"
if "$cluster" kubectl --kubeconfig "$one/alice.kubeconfig" get jobs >/dev/null 2>&1; then fail "alice may list Jobs"; fi
[[ $("$cluster" kubectl --kubeconfig "$one/sluice.kubeconfig" auth whoami -o jsonpath='{.status.userInfo.username}') == \
  system:serviceaccount:sluice-system:sluice ]] || fail "sluice is another user"

check "a second cluster runs beside the first, without MutatingAdmissionPolicies"
api=admissionregistration.k8s.io/v1
"$cluster" up --dir "$two" --port 0 --apiserver-flag=--feature-gates=MutatingAdmissionPolicy=false \
  --apiserver-flag="--runtime-config=$api/mutatingadmissionpolicies=false,$api/mutatingadmissionpolicybindings=false" >/dev/null
if "$cluster" kubectl --kubeconfig "$two/admin.kubeconfig" get mutatingadmissionpolicies >/dev/null 2>&1; then
  fail "the second cluster serves MutatingAdmissionPolicies"
fi
k get mutatingadmissionpolicies >/dev/null 2>&1
"$cluster" down --purge --dir "$two"
[[ ! -e $two ]] || fail "down --purge left $two"

check "the API server and kwok can be restarted"
for component in kube-apiserver kwok; do "$cluster" restart "$component" --dir "$one"; done
job after-restart 1 'simulate.sluice.dev/duration: 100ms'
until_equal 15 True job/after-restart '.status.conditions[?(@.type=="Complete")].status'

check "after kill -9 of everything, up continues with the same data"
kill -9 $(cut -d' ' -f1 "$one"/*.pid)
if "$cluster" status --dir "$one" >/dev/null 2>&1; then fail "status sees nothing"; fi
"$cluster" up --dir "$one" >/dev/null
[[ $(value job/short .status.succeeded) == 3 ]] || fail "the data is lost"
job after-crash 1 'simulate.sluice.dev/duration: 100ms'
until_equal 15 True job/after-crash '.status.conditions[?(@.type=="Complete")].status'

patience=${SMOKE_HEARTBEAT_SECONDS:-150}
check "the node still reports after $patience s"
while ((SECONDS - node_since < patience)); do sleep 1; done
[[ $(value node/gpu-0 "$ready") == True ]] || fail "the node is no longer Ready"

check "down leaves no process"
pids=$(cut -d' ' -f1 "$one"/*.pid)
"$cluster" down --dir "$one"
for pid in $pids; do
  [[ ! -e /proc/$pid ]] || grep -q '^State:.*zombie' "/proc/$pid/status" || fail "process $pid still runs"
done
[[ -z $(ls "$one"/*.pid 2>/dev/null) ]] || fail "pid files remain"
check "passed after $SECONDS s"
