//! Objects that a simulation refuses.

use super::*;

#[test]
fn objects_that_an_api_server_refuses_are_errors_with_file_document_and_field() {
    for (part, expected) in [
        (
            job("nowhere/x", 1, ""),
            "s.yaml: document 6 (Job nowhere/x): metadata.namespace: there is no Namespace \"nowhere\"",
        ),
        (
            job_of("a/x", 1, 1, "", "|      priorityClassName: huge"),
            "s.yaml: document 6 (Job a/x): spec.template.spec.priorityClassName: there is no PriorityClass \"huge\"",
        ),
        (
            job("a/x", 1, "sluice.dev/time-limit: soon"),
            "s.yaml: document 6 (Job a/x): metadata.annotations[sluice.dev/time-limit]: \"soon\" is not a duration",
        ),
        (
            job("a/x", 1, "sluice.dev/pool: gold"),
            "s.yaml: document 6 (Job a/x): metadata.annotations[sluice.dev/pool]: NodePool \"gold\" does not exist",
        ),
        (
            job("a/x", 1, "").replace("annotations:", "labels: {sluice.dev/queue: fast}, annotations:"),
            "s.yaml: document 6 (Job a/x): metadata.labels[sluice.dev/queue]: team \"a\" has no queue \"fast\"",
        ),
        (
            job_of("a/x", 1, 1, "", "  paralellism: 3"),
            "s.yaml: document 6 (Job a/x): spec.paralellism: a Job has no such field",
        ),
        (
            job("a/x", 1, "").replace("gpu: 1", "gpu: lots"),
            "s.yaml: document 6 (Job a/x): spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: \
             \"lots\" is not a quantity",
        ),
        (
            "---\napiVersion: sluice.dev/v1alpha1\nkind: Team\nmetadata: {name: c}\nspec: {quota: []}\n".to_owned(),
            "s.yaml: document 6 (Team c): spec.quota: a Team has no such field",
        ),
        (
            "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: c, lables: {a: b}}\n".to_owned(),
            "s.yaml: document 6 (Namespace c): metadata.lables: a Namespace has no such field",
        ),
        (
            job("a/x", 1, "").replace("image: x,", "imag: x,"),
            "s.yaml: document 6 (Job a/x): spec.template.spec.containers[0].imag: a Job has no such field",
        ),
        (
            job("a/x", 1, "").replace("gpu: 1", "gpu: 1.5"),
            "s.yaml: document 6 (Job a/x): spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: \
             1.5 is not a whole number",
        ),
        (
            job("a/x", 1, "").replace("      restartPolicy: Never\n", ""),
            "s.yaml: document 6 (Job a/x): spec.template.spec.restartPolicy: is missing; for a Job it must be",
        ),
        (
            job_of("a/x", 1, 1, "", "").replace("parallelism: 1", "parallelism: -1"),
            "s.yaml: document 6 (Job a/x): spec.parallelism: -1 is negative",
        ),
        (
            job("a/x", 1, "").replace("Never", "Always"),
            "s.yaml: document 6 (Job a/x): spec.template.spec.restartPolicy: \"Always\" is not allowed for a Job",
        ),
        (
            job("a/x", 1, "").replace("limits", "requests"),
            "s.yaml: document 6 (Job a/x): spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: is missing; \
             the limit of nvidia.com/gpu must equal the request, 1",
        ),
        (
            job("a/x", 1, "").replace("limits", "requests: {nvidia.com/gpu: 2}, limits"),
            "s.yaml: document 6 (Job a/x): spec.template.spec.containers[0].resources.requests[nvidia.com/gpu]: \
             2 must equal the limit, 1",
        ),
        (
            job("a/x", 1, "").replace("{nvidia.com/gpu: 1}", "{cpu: 500m}, requests: {cpu: 1}"),
            "s.yaml: document 6 (Job a/x): spec.template.spec.containers[0].resources.requests[cpu]: \
             1 is more than the limit, 500m",
        ),
        (
            "---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: c}\nspec: {selector: []}\n".to_owned(),
            "s.yaml: document 6 (DeviceClass c): spec.selector: a DeviceClass has no such field",
        ),
        (
            "---\napiVersion: sluice.dev/v1alpha1\nkind: Team\nmetadata: {name: c}\nspec: {weight: -1}\n"
                .to_owned(),
            "s.yaml: document 6 (Team c): spec.weight: must not be negative",
        ),
        (
            "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: c, labels: {sluice.dev/team: c}}\n"
                .to_owned()
                + &job("c/x", 1, ""),
            "s.yaml: document 7 (Job c/x): metadata.namespace: team \"c\" (label sluice.dev/team of namespace \"c\") \
             does not exist",
        ),
        (
            node("n0", 4, "") + &job("a/x", 3, &notes(&[("running-on", "n0=4")])),
            "s.yaml: document 7 (Job a/x): metadata.annotations[simulate.sluice.dev/running-on]: names 4 pods, but it \
             runs 3 at once",
        ),
    ] {
        let error = error(&[part]);
        assert!(error.starts_with(expected), "expected {expected:?}\n     got {error:?}");
        assert_eq!(error.lines().count(), 1, "{error:?}");
    }
}

/// A Team with this spec.
#[test]
fn what_the_definitions_of_teams_and_jobs_forbid_is_refused() {
    let team = |spec: &str| {
        format!("---\napiVersion: sluice.dev/v1alpha1\nkind: Team\nmetadata: {{name: c}}\nspec: {spec}\n")
    };
    let mode = |mode: &str| job_of("a/x", 1, 1, "", &format!("  completionMode: {mode}"));
    for (part, expected) in [
        (team("{weight: 2000000}"), "(Team c): spec.weight: must be at most 1000000"),
        (team("[]"), "(Team c): spec: expected a map, not a list"),
        (team("null"), "(Team c): spec: expected a map, not null"),
        (team("{notify: [{transitions: [Started]}]}"), "(Team c): spec.notify[0]: an endpoint needs url or secretRef"),
        (
            team("{notify: [{transitions: [Started], url: http://x}]}"),
            "(Team c): spec.notify[0].url: \"http://x\" must match ^https://",
        ),
        (
            "---\napiVersion: sluice.dev/v1alpha1\nkind: NodePool\nmetadata: {name: p}\nspec: {nodeSelector: {a: b}, topology: ['']}\n"
                .to_owned(),
            "(NodePool p): spec.topology[0]: must have at least 1 character",
        ),
        (mode("indexed"), "(Job a/x): spec.completionMode: \"indexed\" is none of NonIndexed and Indexed"),
        (
            mode("Indexed").replace("completions: 1", "backoffLimit: 1"),
            "(Job a/x): spec.completions: is missing; completionMode Indexed needs it",
        ),
        (
            job_of("a/x", 1, 1, "", "  manualSelector: true"),
            "(Job a/x): spec.selector: is missing; manualSelector needs it",
        ),
        (
            job("a/x", 1, "").split("- {name").next().unwrap_or_default().replace("containers:", "containers: []"),
            "(Job a/x): spec.template.spec.containers: is empty or missing; a pod needs at least one container",
        ),
        (
            job_of("a/x", 1, 1, "", "").replace("parallelism: 1", "parallelism: '2'"),
            "(Job a/x): spec.parallelism: expected a whole number, not \"2\"",
        ),
    ] {
        let error = error(&[part]);
        assert!(error.starts_with("s.yaml: document 6 ") && error.contains(expected), "expected {expected:?}\n     got {error:?}");
        assert_eq!(error.lines().count(), 1, "{error:?}");
    }
    outcome(&[mode("Indexed"), team("{weight: 1000000}")], &Options::default());
}

fn team(name: &str, notes: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: sluice.dev/v1alpha1\nkind: Team\nmetadata: {{name: {name}, annotations: {{{notes}}}}}\n\
         spec: {spec}\n"
    )
}

/// A NodePool that is applied later.
fn late_pool(name: &str) -> String {
    format!(
        "---\napiVersion: sluice.dev/v1alpha1\nkind: NodePool\nmetadata: {{name: {name}, annotations: {{{}}}}}\n\
         spec: {{nodeSelector: {{gpu: a}}}}\n",
        sim("at", "5s")
    )
}

#[test]
fn parents_and_pools_that_are_never_there_are_errors() {
    for (part, expected) in [
        (
            team("c", "", "{parent: none}"),
            "s.yaml: document 6 (Team c): spec.parent: there is no Team \"none\"",
        ),
        (
            team("c", "", "{parent: d}") + &team("d", "", "{parent: c}"),
            "s.yaml: document 6 (Team c): spec.parent: \"d\" is below \"c\", and no Team is its own ancestor",
        ),
        (
            team("c", "", "{}")
                + &team("d", "", "{parent: c}")
                + &team("c", &sim("at", "5s"), "{parent: e}")
                + &team("e", "", "{parent: d}"),
            "s.yaml: document 8 (Team c): spec.parent: \"e\" is below \"c\", and no Team is its own ancestor",
        ),
        (
            team("c", "", "{parent: c}"),
            "s.yaml: document 6 (Team c): spec.parent: a team cannot be its own parent",
        ),
        (
            team("c", "", "{quotas: [{pool: default}, {pool: gold}]}"),
            "s.yaml: document 6 (Team c): spec.quotas[1].pool: there is no NodePool \"gold\"",
        ),
    ] {
        let error = error(&[part]);
        assert!(error.starts_with(expected), "expected {expected:?}\n     got {error:?}");
        assert_eq!(error.lines().count(), 1, "{error:?}");
    }
    // Those that come later count, and so do circles that are never closed.
    let parts = [
        node("n0", 1, ""),
        team("c", "", "{parent: d, quotas: [{pool: gold}]}"),
        team("d", &sim("at", "5s"), "{}"),
        team("e", "", "{}"),
        team("f", "", "{parent: e}"),
        team("f", &sim("at", "5s"), "{}"),
        team("e", &sim("at", "5s"), "{parent: f}"),
        late_pool("gold"),
    ];
    assert_eq!(outcome(&parts, &Options::default()).end, Clock::seconds(5));
}

#[test]
fn what_a_cluster_would_never_run_from_the_start_is_an_error() {
    let on =
        |label: &str, gpus: u32, nodes: &str| job_of(label, 2, gpus, &notes(&[("running-on", nodes)]), "");
    let other = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: other}\n".to_owned();
    let nodes = node("n0", 4, "") + &node("n1", 4, "");
    let field =
        "metadata.annotations[simulate.sluice.dev/running-on]: with it, what runs on node n0 requests";
    for (parts, expected) in [
        (
            nodes.clone() + &on("a/x", 1, "n0") + &on("a/y", 3, "n0=1,n1=1"),
            format!("s.yaml: document 9 (Job a/y): {field} 5 nvidia.com/gpu, and the node offers 4"),
        ),
        (
            nodes.clone() + &other + &on("a/x", 1, "n0") + &on("other/y", 3, "n0=1,n1=1"),
            format!("s.yaml: document 10 (Job other/y): {field} 5 nvidia.com/gpu, and the node offers 4"),
        ),
        (
            node("n0", 4, "").replace("gpu: 4", "gpu: 4, pods: 3")
                + &on("a/x", 1, "n0")
                + &on("a/y", 1, "n0"),
            format!("s.yaml: document 8 (Job a/y): {field} 4 pods, and the node offers 3"),
        ),
    ] {
        assert_eq!(error(&[parts]), expected);
    }
    let full = outcome(&[nodes, on("a/x", 2, "n0"), on("a/y", 2, "n1")], &Options::default());
    assert_eq!(histories(&full)[0], "a/x; 0s on n0=2 borrowed; Running");
}

#[test]
fn the_effect_of_a_taint_and_the_label_of_a_group_are_checked() {
    let tainted =
        |taint: &str| node("n0", 4, "") + "spec: {taints: [{key: a, effect: NoSchedule}, " + taint + "]}\n";
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: a, annotations: {sluice.dev/group-size: '2'}}\n\
               spec: {containers: [{name: m, image: x}]}\n";
    for (part, expected) in [
        (
            tainted("{key: x, effect: Nope}"),
            "s.yaml: document 6 (Node n0): spec.taints[1].effect: \"Nope\" is none of NoSchedule, PreferNoSchedule and NoExecute",
        ),
        (
            tainted("{key: x}"),
            "s.yaml: document 6 (Node n0): spec.taints[1].effect: is missing; it must be NoSchedule",
        ),
        (
            pod.to_owned(),
            "s.yaml: document 6 (Pod a/p): metadata.annotations[sluice.dev/group-size]: has no effect without the label \
             sluice.dev/group, which names the group",
        ),
    ] {
        let error = error(&[part]);
        assert!(error.starts_with(expected), "expected {expected:?}\n     got {error:?}");
    }
}

#[test]
fn requests_and_limits_that_an_api_server_accepts_are_accepted() {
    let resources =
        "{requests: {cpu: 1, memory: 1Gi, nvidia.com/gpu: '2'}, limits: {cpu: 2, nvidia.com/gpu: 2}}";
    let accepted = job("a/x", 1, "").replace("{limits: {nvidia.com/gpu: 1}}", resources);
    let outcome = outcome(
        &[node("n0", 2, "").replace("gpu: 2}", "gpu: 2, cpu: 8, memory: 8Gi}"), accepted],
        &Options::default(),
    );
    assert_eq!(histories(&outcome), ["a/x; 0s on n0=1; Running"]);
}

#[test]
fn more_pods_than_a_running_job_was_granted_are_refused_and_an_unchanged_manifest_changes_nothing() {
    let again = |part: String| part.replace("annotations: {", "annotations: {simulate.sluice.dev/at: 5s, ");
    let nodes = node("n0", 3, "");
    let four = again(job("a/x", 4, ""));
    assert_eq!(
        error(&[nodes.clone(), job("a/x", 2, ""), four]),
        "s.yaml: document 8 (Job a/x): spec.parallelism: 4 is more than the 2 pods it was granted; suspend it first to \
         queue for more",
    );
    let elastic = job("a/y", 5, "sluice.dev/min-parallelism: '1'");
    for (first, second, start) in [
        (job("a/x", 2, ""), job("a/x", 2, ""), "a/x; 0s on n0=2"),
        (job("a/x", 2, ""), job("a/x", 1, ""), "a/x; 0s on n0=2"),
        (elastic.clone(), elastic, "a/y; 0s on n0=3"),
    ] {
        let outcome = outcome(&[nodes.clone(), first, again(second)], &Options::default());
        let history = &histories(&outcome)[0];
        assert!(history.starts_with(start) && history.ends_with("; Running"), "{history}");
        assert_eq!(outcome.summary.evictions, 0, "{history}");
    }
}

#[test]
fn the_template_of_a_job_with_pods_and_the_resources_of_a_pod_stay_as_they_are() {
    let at = |time: &str, part: String| {
        part.replace("annotations: {", &format!("annotations: {{simulate.sluice.dev/at: {time}, "))
    };
    let pod = |gpus: u32| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: a, annotations: {{}}}}\n\
             spec: {{containers: [{{name: m, image: x, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]}}\n"
        )
    };
    let slow = "|      terminationGracePeriodSeconds: 30";
    let nodes = node("n0", 4, "");
    let gpus = "resources.limits[nvidia.com/gpu]: cannot be changed: ";
    let template = format!("s.yaml: document 8 (Job a/x): spec.template.spec.containers[0].{gpus}");
    for (parts, expected) in [
        (
            [job_of("a/x", 1, 4, "", ""), at("5s", job_of("a/x", 1, 1, "", ""))].concat(),
            format!("{template}a Job that runs keeps its template"),
        ),
        (
            [job_of("a/x", 1, 4, "", ""), at("5s", job_of("a/x", 1, 1, "", "  suspend: true"))].concat(),
            format!("{template}a Job that runs keeps its template"),
        ),
        (
            [
                job_of("a/x", 1, 4, "", slow),
                at("9s", job_of("a/x", 1, 1, "", slow)),
                at("5s", job_of("a/x", 1, 4, "", &format!("  suspend: true{slow}"))),
            ]
            .concat(),
            format!("{template}a Job keeps its template until its last pod is gone"),
        ),
        (
            [pod(2), at("5s", pod(1))].concat(),
            format!(
                "s.yaml: document 8 (Pod a/p): spec.containers[0].{gpus}a Pod that exists keeps its resources"
            ),
        ),
    ] {
        assert_eq!(error(&[nodes.clone(), parts]), expected);
    }
    // Equal amounts are no change, nor are requests that follow from limits, and a Job that waits may change.
    let written = at("5s", job("a/x", 1, ""))
        .replace("{nvidia.com/gpu: 1}", "{nvidia.com/gpu: '1'}, requests: {nvidia.com/gpu: 1000m}");
    let parts = [
        nodes,
        job("a/x", 1, ""),
        written,
        job_of("a/y", 1, 8, "", ""),
        at("5s", job_of("a/y", 1, 1, "", "")),
    ];
    let running = outcome(&parts, &Options::default());
    assert!(histories(&running).iter().all(|history| history.ends_with("; Running")), "{running:?}");
}
