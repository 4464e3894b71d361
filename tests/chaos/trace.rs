//! What a breach is reported with: the objects that it names, and what the replicas logged of them.

use std::path::PathBuf;

use sluice_harness::View;

/// The most lines of a log for one breach, and the most characters of each.
const LINES: usize = 30;
const WIDTH: usize = 400;

/// The names of the workloads that a breach names.
pub fn named(breach: &str) -> Vec<&str> {
    let names = breach.split_whitespace().filter_map(|word| word.split_once('/'));
    names.map(|(_, name)| name).filter(|name| !name.is_empty()).collect()
}

/// The Jobs and pods that a breach names, and the nodes, a line each.
pub fn shown(view: &View, breach: &str) -> String {
    let names = named(breach);
    let jobs = view.jobs.iter().filter(|job| names.contains(&&*job.name)).map(|job| {
        let record = job.admission.as_ref().map(|record| (record.at, record.pods, &record.nodes));
        let (state, active, terminating) = (job.state(), job.active, job.terminating);
        format!(
            "{}/{} {state}, {active} active, {terminating} terminating, {record:?}",
            job.namespace, job.name
        )
    });
    let own = |job: &Option<String>, name: &str| names.contains(&job.as_deref().unwrap_or(name));
    let pods = view.pods.iter().filter(|pod| own(&pod.job, &pod.name)).map(|pod| {
        let (node, bound, deleting) = (&pod.node, pod.bound_at, pod.deleting);
        format!(
            "{}/{} {} node={node:?} bound={bound:?} deleting={deleting}",
            pod.namespace, pod.name, pod.phase
        )
    });
    let nodes = view.nodes.iter().map(|(name, node)| format!("{name} {node:?}"));
    jobs.chain(pods).chain(nodes).map(|line| format!("\n  {line}")).collect()
}

/// The last lines of these logs that name a workload of the breach, or speak of leadership or of a watch.
pub fn logged(logs: &[PathBuf], breach: &str) -> String {
    let mut words = named(breach);
    words.extend(["starting", "leader", "watch failed", "reachable"]);
    let mut lines_of_all = String::new();
    for log in logs {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<&str> =
            text.lines().filter(|line| words.iter().any(|word| line.contains(word))).collect();
        let replica = log.file_stem().unwrap_or_default().display();
        for line in &lines[lines.len().saturating_sub(LINES)..] {
            lines_of_all += &format!("\n  {replica} {}", line.chars().take(WIDTH).collect::<String>());
        }
    }
    lines_of_all
}
