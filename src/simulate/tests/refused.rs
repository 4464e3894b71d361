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
