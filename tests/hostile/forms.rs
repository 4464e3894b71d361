//! The values that hostile objects carry: numbers, texts in every form that some reader parses, marks and fields.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::objects::{EVICTION, RECORD};

/// What begins a text that stands for one of [`RAW`].
pub const MARKER: &str = "RAW#";
/// What stands for a marker in the text.
pub static RAW: LazyLock<Vec<String>> = LazyLock::new(|| {
    vec![
        format!("{}{}", "[".repeat(100), "]".repeat(100)),
        format!("{}{}", "[".repeat(200), "]".repeat(200)),
        format!("{}1{}", "{\"a\":".repeat(130), "}".repeat(130)),
        format!("{}{}", "[".repeat(20_000), "]".repeat(20_000)),
        "9".repeat(300),
        format!("-{}", "9".repeat(25)),
        "1e-400".to_owned(),
        "1E+2".to_owned(),
        "-0".to_owned(),
        "{\"a\":1,\"a\":2}".to_owned(),
        "{\"name\":\"x\",\"name\":3}".to_owned(),
        "\"\\u0000\\u001f\\ud83d\\ude00\"".to_owned(),
    ]
});

pub static NUMBERS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let mut numbers: Vec<Value> = [
        0,
        1,
        2,
        -1,
        3,
        7,
        100,
        9_999,
        10_001,
        100_000,
        -100_000,
        i64::from(i32::MAX),
        i64::from(i32::MIN),
        i64::from(u32::MAX),
        i64::from(u32::MAX) + 1,
        i64::MAX,
        i64::MIN,
        i64::MAX / 1000,
        i64::MAX / 1000 + 1,
        1 << 53,
    ]
    .map(Value::from)
    .into();
    numbers.push(json!(u64::MAX));
    numbers.extend([0.5, -0.0, 1e308, -1e308, 1e-320, 1e18, 2.5e9].map(Value::from));
    numbers
});

pub static POISONS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let mut poisons = vec![
        json!(null),
        json!(true),
        json!(false),
        json!([]),
        json!({}),
        json!([[]]),
        json!([{}]),
        json!([null]),
        json!({"": ""}),
        json!({"a": {"b": [{"c": null}]}}),
        json!("x".repeat(5_000)),
        json!(vec!["a"; 40]),
        json!([1, "a", null, {}]),
    ];
    poisons.extend(NUMBERS.iter().cloned());
    poisons.extend(TEXTS.iter().map(|text| json!(text)));
    poisons.extend((0..RAW.len()).map(|index| json!(format!("{MARKER}{index}"))));
    poisons
});

/// Texts of every form that is read somewhere: amounts, durations, times, indexes, names, records.
pub static TEXTS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let forms: [&[&str]; 8] = [
        &ODD,
        &AMOUNTS,
        &DURATIONS,
        &TIMES,
        &INDEXES,
        &NAMES,
        &RECORDS,
        &[
            "true",
            "false",
            "True",
            "Exists",
            "In",
            "NotIn",
            "Gt",
            "Lt",
            "DoesNotExist",
            "Indexed",
            "Always",
            "Running",
            "Succeeded",
            "Failed",
            "Never",
            "Suspended",
            "Complete",
        ],
    ];
    forms.concat()
});

const ODD: [&str; 12] =
    ["", " ", "\u{0}", "\u{7f}\u{1b}[31m", "é̂漢字😀\u{202e}", "null", "{}", "[]", "/", "~0~1", "a/b/c", "-"];
const AMOUNTS: [&str; 24] = [
    "0",
    "1",
    "-1",
    "1m",
    "0.0001",
    "1n",
    "1u",
    "1k",
    "1Ki",
    "1E",
    "1Ei",
    "16Ei",
    "9E",
    "1e3",
    "1E3",
    "1e-3",
    "1e400",
    "1.5.5",
    "+1",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "9223372036854775807Ei",
    "99999999999999999999999999999999999999",
];
const DURATIONS: [&str; 16] = [
    "0s",
    "1s",
    "90m",
    "24h",
    "1h30m",
    "-5m",
    "1e9h",
    "9999999999h",
    "9999999999s",
    "2562047h47m16.854775807s",
    "1.5h",
    "1ns",
    "1µs",
    "5",
    "h",
    "1h-5m",
];
const TIMES: [&str; 9] = [
    "2026-11-21T08:00:00Z",
    "2026-11-21T08:00:00.123456789+14:00",
    "0000-01-01T00:00:00Z",
    "9999-12-30T22:00:00Z",
    "-009999-01-02T01:59:59Z",
    "2026-02-30T00:00:00Z",
    "2026-11-21T23:59:60Z",
    "1969-12-31T23:59:59Z",
    "2026-11-21",
];
const INDEXES: [&str; 10] = [
    "0",
    "0-2,5",
    "5-2",
    "0-4294967295",
    "0-4294967294,4294967295",
    "-1",
    "1-",
    ",",
    "0,0,0",
    "4294967296-99999999999999",
];
const NAMES: [&str; 28] = [
    "ns",
    "low",
    "vision",
    "speech",
    "research",
    "ghost",
    "training",
    "serving",
    "default",
    "a100",
    "a100,default",
    "n0",
    "n1",
    "n9",
    "j",
    "p",
    "j-0",
    "rj",
    "g",
    "high",
    "urgent",
    "sluice-high",
    "sluice",
    "system-node-critical",
    "nvidia.com/gpu",
    "sluice.dev/gpu",
    "metadata.name",
    "kubernetes.io/hostname",
];
const RECORDS: [&str; 16] = [
    RECORD,
    EVICTION,
    "{\"pool\":",
    r#"{"pool":"default","nodes":{},"pods":0,"borrowed":false,"at":"2026-11-21T08:00:00Z"}"#,
    r#"{"pool":"default","nodes":{"n0":4294967295},"pods":4294967295,"borrowed":true,"at":"2026-11-21T08:00:00Z"}"#,
    r#"{"pool":"default","nodes":{"n0":4294967295,"n1":4294967295},"pods":1,"borrowed":true,"at":"9999-12-30T22:00:00Z"}"#,
    r#"{"pool":"default","nodes":{"n0":1},"pods":-1,"borrowed":false,"at":"2026-11-21T08:00:00Z"}"#,
    r#"{"pool":"ghost","nodes":{"n9":1,"":2},"pods":3,"borrowed":false,"at":"-009999-01-02T01:59:59Z"}"#,
    r#"{"pool":"","nodes":{"n0":1},"pods":1,"borrowed":false,"at":"2026-11-21T08:00:00Z","wanted":4294967295,"share":"0.5","done":"0-4294967295"}"#,
    r#"{"pool":"a100","nodes":{"n0":2},"pods":2,"borrowed":false,"at":"2026-11-21T08:00:00Z","wanted":0,"share":"-1","done":""}"#,
    r#"{"pool":"default","nodes":{"n0":1,"n1":1},"pods":2,"borrowed":false,"at":"2026-11-21T08:00:00Z","share":"9223372036854775807","done":"x"}"#,
    r#"{"pool":"default","nodes":{"n0":2},"pods":2,"borrowed":false,"at":"2026-11-21T08:00:00Z","group":{"id":"j","members":{"p":"n0","j-0":"n1"}}}"#,
    r#"{"pool":"default","nodes":{"n0":1},"pods":1,"borrowed":false,"at":"2026-11-21T08:00:00Z","group":{"id":"","members":{}}}"#,
    r#"{"pool":"default","nodes":{"n0":3},"pods":4294967295,"borrowed":false,"at":"2026-11-21T08:00:00Z","group":{"id":"pg","members":{"p":"n0","x":"n0"}}}"#,
    r#"{"at":"9999-12-30T22:00:00Z","for":"","reason":""}"#,
    r#"{"at":"-009999-01-02T01:59:59Z","reason":"Reclaimed"}"#,
];

pub const MARKS: [(&str, &str); 28] = [
    ("labels", "sluice.dev/team"),
    ("labels", "sluice.dev/queue"),
    ("labels", "sluice.dev/group"),
    ("labels", "sluice.dev/placed"),
    ("labels", "sluice.dev/own-affinity"),
    ("labels", "sluice.dev/twin"),
    ("annotations", "sluice.dev/held"),
    ("annotations", "sluice.dev/admission"),
    ("annotations", "sluice.dev/admission"),
    ("annotations", "sluice.dev/eviction"),
    ("annotations", "sluice.dev/user-affinity"),
    ("annotations", "sluice.dev/nodes"),
    ("annotations", "sluice.dev/user"),
    ("annotations", "sluice.dev/pool"),
    ("annotations", "sluice.dev/time-limit"),
    ("annotations", "sluice.dev/min-parallelism"),
    ("annotations", "sluice.dev/topology-required"),
    ("annotations", "sluice.dev/topology-preferred"),
    ("annotations", "sluice.dev/checkpoint-interval"),
    ("annotations", "sluice.dev/last-checkpoint"),
    ("annotations", "sluice.dev/gpu-fraction"),
    ("annotations", "sluice.dev/gpu-offer"),
    ("annotations", "sluice.dev/gpu-sizes"),
    ("annotations", "sluice.dev/group-size"),
    ("annotations", "sluice.dev/preemptible"),
    ("annotations", "sluice.dev/twin-of"),
    ("annotations", "batch.kubernetes.io/job-completion-index"),
    ("annotations", "kubectl.kubernetes.io/last-applied-configuration"),
];

/// Texts that are read as what this mark says, or nearly.
pub fn suitable(mark: &str) -> &'static [&'static str] {
    match mark.trim_start_matches("sluice.dev/") {
        "team" | "queue" | "pool" | "group" | "nodes" | "twin-of" => &NAMES,
        "admission" | "eviction" => &RECORDS,
        "time-limit" | "checkpoint-interval" => &DURATIONS,
        "last-checkpoint" => &TIMES,
        "min-parallelism" | "group-size" | "batch.kubernetes.io/job-completion-index" => &INDEXES,
        "topology-required" | "topology-preferred" => {
            &["zone", "rack", "kubernetes.io/hostname", "absent", "a b"]
        }
        "gpu-fraction" => &[
            "0.5",
            "0.5,0.25",
            "1,0.5",
            "0.001",
            "0.0001",
            "0.999",
            "1",
            ",",
            "0.5,0.5",
            "0.9,0.8,0.7,0.6,0.5,0.4,0.3,0.2,0.1",
        ],
        "gpu-offer" | "gpu-sizes" => &[
            r#"[{"fraction":"0.5","devices":{"nvidia.com/gpu.shared":2}}]"#,
            r#"{"0.5":{"nvidia.com/gpu.shared":"2"}}"#,
            "[]",
            "{",
            r#"[{"share":"0.5","limits":{"nvidia.com/gpu":-1}}]"#,
        ],
        "user-affinity" => &[
            "{}",
            "null",
            r#"{"nodeAffinity":3}"#,
            r#"{"/spec/template":null,"/spec/rayClusterSpec/headGroupSpec/template":{"nodeAffinity":{}}}"#,
            "[",
        ],
        "kubectl.kubernetes.io/last-applied-configuration" => &[
            r#"{"spec":{"suspend":false,"parallelism":4294967296}}"#,
            r#"{"spec":{"suspend":false,"parallelism":9}}"#,
            "{",
            "[]",
        ],
        _ => &[],
    }
}

/// Fields that Sluice reads, with values that reach its arithmetic. `template` stands for any pod template.
pub static FIELDS: LazyLock<Vec<(&'static str, Vec<Value>)>> = LazyLock::new(|| {
    let numbers = || NUMBERS.clone();
    let amounts = || AMOUNTS.map(Value::from).into_iter().chain(NUMBERS.iter().cloned()).collect::<Vec<_>>();
    let times = || TIMES.map(Value::from).to_vec();
    let names = || NAMES.map(Value::from).to_vec();
    let flags = || vec![json!(true), json!(false), json!(null)];
    let owner = |version: &str, kind: &str, name: &str| json!([{"apiVersion": version, "kind": kind, "name": name, "uid": name, "controller": true}]);
    let owners = vec![
        owner("batch/v1", "Job", "j"),
        owner("batch/v1", "Job", "j-0"),
        owner("ray.io/v1", "RayJob", "rj"),
        owner("ray.io/v1", "RayCluster", "rc"),
        owner("apps/v1", "ReplicaSet", "rs"),
        owner("apps/v1", "DaemonSet", "ds"),
        owner("v1", "Pod", "p"),
        owner("jobset.x-k8s.io/v1alpha2", "JobSet", "js"),
        owner("", "", ""),
        json!([]),
        json!([{}, {}]),
    ];
    let term = |keys: usize| json!({"matchExpressions": vec![json!({"key": "gpu", "operator": "In", "values": ["yes"]}); keys]});
    let affinities = vec![
        json!({}),
        json!({"nodeAffinity": null}),
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}),
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}),
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": vec![term(1); 70]}}}),
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term(90), term(0)]}}}),
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "slots", "operator": "Gt", "values": ["9223372036854775808"]}, {"key": "slots", "operator": "Lt", "values": []}]}]}}}),
    ];
    let gates = vec![
        json!([]),
        json!([{"name": "sluice.dev/admission"}]),
        json!([{"name": "sluice.dev/placement"}]),
        json!([{"name": "sluice.dev/placement"}, {"name": "x"}, {}]),
        json!(vec![json!({"name": "g"}); 20]),
    ];
    let quantities = |resource: &str| AMOUNTS.map(|amount| json!({resource: amount})).to_vec();
    vec![
        ("metadata/deletionTimestamp", times()), ("metadata/creationTimestamp", times()), ("metadata/generation", numbers()),
        ("metadata/resourceVersion", AMOUNTS.map(Value::from).to_vec()), ("metadata/uid", names()), ("metadata/namespace", names()),
        ("metadata/name", names()), ("metadata/ownerReferences", owners.clone()), ("metadata/ownerReferences", owners),
        ("spec/suspend", flags()), ("spec/suspend", flags()), ("spec/parallelism", numbers()), ("spec/completions", numbers()), ("spec/activeDeadlineSeconds", numbers()),
        ("spec/completionMode", vec![json!("Indexed"), json!("NonIndexed")]), ("spec/backoffLimitPerIndex", numbers()),
        ("spec/podFailurePolicy", vec![json!({"rules": []})]), ("spec/runPolicy/suspend", flags()), ("spec/replicatedJobs/0/replicas", numbers()),
        ("spec/replicatedJobs/0/template/spec/parallelism", numbers()), ("spec/rayClusterSpec/workerGroupSpecs/0/replicas", numbers()),
        ("spec/rayClusterSpec/workerGroupSpecs/0/numOfHosts", numbers()), ("spec/rayClusterSpec/workerGroupSpecs/0/minReplicas", numbers()),
        ("spec/pytorchReplicaSpecs/Worker/replicas", numbers()), ("spec/trainer/numNodes", numbers()), ("spec/trainer/resourcesPerNode/limits/cpu", amounts()),
        ("status/active", numbers()), ("status/succeeded", numbers()), ("status/terminating", numbers()), ("status/ready", numbers()),
        ("status/completedIndexes", INDEXES.map(Value::from).to_vec()), ("status/failedIndexes", INDEXES.map(Value::from).to_vec()),
        ("status/startTime", times()), ("status/completionTime", times()), ("status/phase", ["Pending", "Running", "Succeeded", "Failed", "Unknown", ""].map(Value::from).to_vec()),
        ("status/conditions/0/type", ["Suspended", "Complete", "Failed", "Ready", "PodScheduled", "DisruptionTarget", "Completed"].map(Value::from).to_vec()),
        ("status/conditions/0/status", ["True", "False", "Unknown"].map(Value::from).to_vec()), ("status/conditions/0/lastTransitionTime", times()),
        ("status/jobDeploymentStatus", ["Complete", "Failed", "Suspended", "Running"].map(Value::from).to_vec()),
        ("status/allocatable", quantities("nvidia.com/gpu")), ("status/allocatable/nvidia.com~1gpu", amounts()), ("status/allocatable/cpu", amounts()),
        ("spec/unschedulable", flags()), ("spec/nodeSelector", vec![json!({}), json!({"zone": "a"}), json!({"gpu": "yes", "": ""})]),
        ("spec/quotas/0/guaranteed", quantities("nvidia.com/gpu")), ("spec/quotas/0/limit", quantities("nvidia.com/gpu")), ("spec/quotas/0/guaranteed/cpu", amounts()),
        ("spec/quotas/0/pool", names()), ("spec/weight", numbers()), ("spec/parent", names()), ("spec/queues/0/priority", numbers()), ("spec/queues/0/maxGrace", DURATIONS.map(Value::from).to_vec()),
        ("spec/queues/0/timeLimit", DURATIONS.map(Value::from).to_vec()), ("spec/queues/0/minRunTime", DURATIONS.map(Value::from).to_vec()), ("spec/shares", quantities("nvidia.com/gpu.shared")), ("spec/weights", quantities("nvidia.com/gpu")), ("spec/topology", vec![json!([]), json!(["zone", "zone"]), json!(["a", "b", "c", "d", "e", "f", "g", "h"])]),
        ("value", numbers()), ("globalDefault", flags()), ("preemptionPolicy", vec![json!("Never"), json!("PreemptLowerPriority")]),
        ("spec/devices/requests/0/exactly/count", numbers()), ("spec/spec/devices/requests/0/exactly/count", numbers()), ("spec/devices/requests/0/exactly/allocationMode", vec![json!("All"), json!("ExactCount")]),
        ("spec/pool/generation", numbers()), ("spec/pool/resourceSliceCount", numbers()), ("spec/devices/0/capacity/memory/value", amounts()),
        ("spec/selectors/0/cel/expression", [
            "true", "false", "1/0 == 1", "device", "device.attributes['gpu.example.com'].model == 'a'", "(((((((((((((((((((((((((((((((true)))))))))))))))))))))))))))))))",
            "device.capacity['gpu.example.com'].memory.compareTo(quantity('1e400')) >= 0", "[1,2,3].map(x, [1,2,3].map(y, [1,2,3].map(z, x*y*z))).size() > 0",
            "device.attributes['gpu.example.com'].version.isGreaterThan(semver('99999999999999999999.0.0'))", "'a'.matches('(a+)+$')", "\u{0}", "!!!!!!!!!!!!!!!!!!!!!!!true",
            "9223372036854775807 + 1 > 0", "-9223372036854775808 / -1 > 0", "size('x') % 0 == 1",
        ].map(Value::from).to_vec()),
        ("template/spec/affinity", affinities), ("template/spec/schedulingGates", gates), ("template/spec/priorityClassName", names()), ("template/spec/priority", numbers()),
        ("template/spec/preemptionPolicy", vec![json!("Never"), json!("PreemptLowerPriority")]), ("template/spec/nodeName", names()), ("template/spec/terminationGracePeriodSeconds", numbers()),
        ("template/spec/activeDeadlineSeconds", numbers()), ("template/spec/schedulingGroup", vec![json!({"podGroupName": "sluice-j-0815"}), json!({"podGroupName": "mine"}), json!({})]),
        ("template/spec/containers/0/resources/limits", quantities("nvidia.com/gpu")), ("template/spec/containers/0/resources/requests", quantities("cpu")),
        ("template/spec/containers/0/resources/limits/cpu", amounts()), ("template/spec/containers/0/resources/requests/memory", amounts()), ("template/spec/resources", vec![json!({"requests": {"cpu": "16Ei"}}), json!({"limits": {"cpu": "-1"}})]),
        ("template/spec/overhead/cpu", amounts()), ("template/spec/containers", vec![json!([]), json!([{}]), json!([{"resources": {}}])]),
        ("template/spec/resourceClaims", vec![json!([]), json!([{"name": "gpu", "resourceClaimName": "one"}]), json!(vec![json!({"name": "gpu", "resourceClaimTemplateName": "one"}); 40]), json!([{"name": "x"}])]),
        ("template/spec/tolerations", vec![json!([]), json!([{"operator": "Exists"}]), json!([{"key": "", "operator": "x", "tolerationSeconds": i64::MIN}])]),
        ("template/metadata/labels/sluice.dev~1team", names()),
    ]
});
