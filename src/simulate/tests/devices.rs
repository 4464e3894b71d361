//! Claimed devices in scenarios.

use super::*;

/// A device class, and four devices of which it selects three.
const DEVICES: &str = "---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: big.example.com}
spec:
  extendedResourceName: nvidia.com/gpu
  selectors:
  - cel: {expression: \"device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0\"}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n0}
spec:
  driver: gpu.example.com
  nodeName: n0
  pool: {name: n0, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: gpu-0, capacity: {memory: {value: 80Gi}}}
  - {name: gpu-1, capacity: {memory: {value: 80Gi}}}
  - {name: gpu-2, capacity: {memory: {value: 80Gi}}}
  - {name: small, capacity: {memory: {value: 16Gi}}}
";

fn template(namespace: &str, notes: &str) -> String {
    format!(
        "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\n\
         metadata: {{name: one, namespace: {namespace}, annotations: {{{notes}}}}}\n\
         spec: {{spec: {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: big.example.com}}}}]}}}}}}\n"
    )
}

/// A Job with one claimed device per pod.
fn claiming(label: &str, notes: &str) -> String {
    let claims = "|      resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]";
    job_of(label, 1, 0, notes, claims)
}

#[test]
fn claimed_devices_count_as_on_a_cluster() {
    let bare = node("n0", 0, "").replace("nvidia.com/gpu: 0", "cpu: 8");
    let scenario = [
        bare,
        DEVICES.into(),
        template("a", ""),
        template("b", &sim("at", "20s")),
        claiming("a/x", &notes(&[("count", "4")])),
        claiming("b/owner", &notes(&[("at", "10s"), ("duration", "30s")])),
    ];
    let at = |seconds| {
        let options = Options { until: Some(Duration::from_secs(seconds)), ..Options::default() };
        outcome(&scenario, &options)
    };
    // The class does not select the small device: three Jobs run, the fourth waits.
    let before = at(15);
    let states: Vec<State> = before.workloads.iter().map(|row| row.state).collect();
    assert_eq!(states, [State::Running, State::Running, State::Running, State::Pending, State::Pending]);
    assert_eq!(before.teams[0].used["nvidia.com/gpu"], "3");
    assert_eq!(before.nodes[0].free["nvidia.com/gpu"], "0");
    assert_eq!(
        (before.workloads[3].reason.as_str(), before.workloads[4].reason.as_str()),
        ("NoRoom", "Uncounted")
    );
    assert!(before.workloads[4].message.contains("there is no ResourceClaimTemplate one"));
    // Once the template exists, the owner's claim is counted and it reclaims its guarantee.
    let after = at(25);
    let owner = &after.workloads[4];
    assert_eq!((owner.state, owner.admissions[0].at.to_string()), (State::Running, "20s".to_owned()));
    assert_eq!(after.summary.evictions, 1);
}

#[test]
fn unmanaged_pods_claim_devices_that_arrive_later() {
    let bare = node("n0", 0, "").replace("nvidia.com/gpu: 0", "cpu: 8");
    let late = DEVICES.replacen(
        "metadata: {name: n0}",
        "metadata: {name: n0, annotations: {simulate.sluice.dev/at: 5s}}",
        1,
    );
    let unmanaged = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: unmanaged, namespace: default}\n\
                   spec: {resourceClaims: [{name: gpu, resourceClaimTemplateName: one}], containers: [{name: main}]}\n";
    let parts = [
        bare,
        late,
        template("a", ""),
        template("default", ""),
        unmanaged.into(),
        claiming("a/x", &notes(&[("count", "3")])),
    ];
    let rows =
        histories(&outcome(&parts, &Options { until: Some(Duration::from_secs(9)), ..Options::default() }));
    assert_eq!(rows[0], "default/unmanaged; 5s on n0=1; Running", "{rows:?}");
    let running = rows.iter().filter(|row| row.ends_with("Running")).count();
    assert_eq!(running, 3, "{rows:?}");
    let lost = [parts[..3].concat(), unmanaged.into()];
    let error = error(&lost);
    assert!(
        error.contains("(Pod default/unmanaged): spec.resourceClaims: there is no ResourceClaimTemplate one"),
        "{error}"
    );
}

#[test]
fn a_snapshot_includes_devices() {
    let ready = "status: {conditions: [{type: Ready, status: \"True\"}], allocatable: {cpu: 8}}";
    let bare = node("n0", 0, "").replace("status: {allocatable: {nvidia.com/gpu: 0}}", ready);
    let dump = format!("{TEAMS}{bare}{DEVICES}{}", template("a", ""));
    let snapshot = Snapshot::parse("dump.yaml", &dump).expect("a snapshot");
    let jobs = claiming("a/x", &notes(&[("count", "4")]));
    let scenario = Scenario::parse([("s.yaml", jobs.as_str())]).expect("a scenario");
    let played = run_with(Some(&snapshot), &scenario, &Options::default(), &mut |_| ()).expect("an outcome");
    let states: Vec<State> = played.workloads.iter().map(|row| row.state).collect();
    assert_eq!(states, [State::Running, State::Running, State::Running, State::Pending]);
}
