//! The placement of GPU fractions on devices. No device is overfilled, and fractions stay on their device.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sluice_engine::types::{Event, Name, Workload, WorkloadId};

use super::placement::{Cluster, gpu, job, node, on};
use super::world::{GPU, team};

#[test]
fn gpu_fractions_fill_the_tightest_device_before_a_new_one() {
    let mut cluster = Cluster::new(vec![node("n0", &[], &gpu(2_000))]);
    assert_eq!(cluster.submit(job("first", 1, &gpu(500))), on("n0", 1));
    assert_eq!(cluster.submit(job("six", 1, &gpu(600))), on("n0", 1));
    assert_eq!(cluster.submit(job("half", 1, &gpu(500))), on("n0", 1));
    assert_eq!(cluster.submit(job("other-half", 1, &gpu(500))), None, "only .4 is left of the second device");
    assert_eq!(cluster.submit(job("third", 1, &gpu(300))), on("n0", 1));
    let expected = [
        vec![("first".to_owned(), 500), ("half".to_owned(), 500)],
        vec![("six".to_owned(), 600), ("third".to_owned(), 300)],
    ];
    assert_eq!(cluster.shared()["n0"], expected);
    cluster.finish("first");
    assert!(cluster.running.contains_key(&WorkloadId("other-half".into())), "the first device fits it again");
}

#[test]
fn a_device_is_whole_again_when_its_last_fraction_ends() {
    let mut cluster = Cluster::new(vec![node("n0", &[], &gpu(2_000))]);
    for name in ["a", "b"] {
        assert_eq!(cluster.submit(job(name, 1, &gpu(500))), on("n0", 1));
    }
    assert_eq!(cluster.submit(job("pair", 1, &gpu(2_000))), None);
    assert_eq!(cluster.submit(job("whole", 1, &gpu(1_000))), on("n0", 1), "both fractions are on one device");
    cluster.finish("a");
    assert_eq!(cluster.submit(job("next", 1, &gpu(1_000))), None, "half a device is no device");
    cluster.finish("b");
    assert!(cluster.running.contains_key(&WorkloadId("next".into())));
}

#[test]
fn fractions_of_one_device_are_evicted_for_a_fraction() {
    let arrange = || {
        let mut cluster = Cluster::new(vec![node("n0", &[], &gpu(2_000))]);
        cluster.report(Event::TeamApplied(team("t", None, 1, None)));
        cluster.report(Event::TeamApplied(team("b", None, 1, None)));
        for (name, milli) in [("one", 1_000), ("x", 500), ("y", 500)] {
            assert_eq!(cluster.submit(job(name, 1, &gpu(milli))), on("n0", 1));
        }
        cluster
    };
    let names = |cluster: &Cluster| cluster.running.keys().map(ToString::to_string).collect::<Vec<_>>();
    let of_b = |name, milli| Workload { team: "b".into(), ..job(name, 1, &gpu(milli)) };
    let mut cluster = arrange();
    cluster.submit(of_b("small", 400));
    assert_eq!(names(&cluster), ["one", "small", "x"], "the newest fraction is evicted");
    cluster.submit(of_b("more", 800));
    assert_eq!(names(&cluster), ["one", "small", "x"], "1.2 GPUs exceed the guarantee");
    let mut cluster = arrange();
    cluster.submit(of_b("large", 800));
    assert_eq!(names(&cluster), ["large", "one"], "both fractions of the one device are evicted");
}

/// GPU fractions by node and device, of these workloads only; devices without any are left out.
fn fractions_of(
    workloads: &BTreeSet<WorkloadId>,
    shared: BTreeMap<Name, Vec<Vec<(String, i64)>>>,
) -> Vec<(Name, Vec<(String, i64)>)> {
    let mut groups = Vec::new();
    for (node, devices) in shared {
        for mut device in devices {
            device.retain(|(id, _)| workloads.contains(&WorkloadId(id.as_str().into())));
            device.sort();
            if !device.is_empty() {
                groups.push((node.clone(), device));
            }
        }
    }
    groups.sort();
    groups
}

/// Devices of a node that are in use by whole GPUs, by the admissions.
fn whole_devices(cluster: &Cluster, node: &Name) -> i64 {
    let held = cluster.running.values().map(|(workload, admission)| {
        let need = workload.shape.requests.get(GPU).map_or(0, |amount| amount.as_milli());
        let whole = if need % 1_000 == 0 { need / 1_000 } else { 0 };
        whole * i64::from(admission.nodes.get(node).copied().unwrap_or(0))
    });
    held.sum()
}

/// No node has more devices in use than it offers, and no device more fractions than one GPU.
fn no_device_is_overfilled(cluster: &Cluster, offers: &[i64]) -> Result<(), TestCaseError> {
    let shared = cluster.shared();
    for (i, offered) in offers.iter().enumerate() {
        let name: Name = format!("n{i}").into();
        for device in &shared[&name] {
            prop_assert!(device.iter().map(|(_, fraction)| fraction).sum::<i64>() <= 1_000, "{device:?}");
        }
        let in_use = whole_devices(cluster, &name) + i64::try_from(shared[&name].len()).expect("few");
        prop_assert!(in_use <= *offered, "{in_use} of {offered} devices of {name} are in use");
    }
    Ok(())
}

/// No workload of one pod waits while a node has whole devices for it, or a shared one with enough left.
fn no_pod_waits_while_it_fits(cluster: &Cluster, offers: &[i64]) -> Result<(), TestCaseError> {
    let shared = cluster.shared();
    for waiting in cluster.waiting.values().filter(|workload| workload.pods == 1) {
        let need = waiting.shape.requests[GPU].as_milli();
        for (i, offered) in offers.iter().enumerate() {
            let name: Name = format!("n{i}").into();
            let devices = &shared[&name];
            let unused = offered - whole_devices(cluster, &name) - devices.len() as i64;
            let used = |device: &Vec<(String, i64)>| device.iter().map(|(_, fraction)| fraction).sum::<i64>();
            let fits_shared = need < 1_000 && devices.iter().any(|device| used(device) + need <= 1_000);
            let fits = fits_shared || unused * 1_000 >= need;
            prop_assert!(!fits, "{} waits for {need} though {name} fits it", waiting.id);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn law_1_no_device_is_overfilled_and_no_gpu_fraction_moves(
        offers in prop::collection::vec(1..4_i64, 1..4),
        steps in prop::collection::vec((0..3_u8, 1..4_u32, 0..7_usize), 1..40),
    ) {
        let nodes = offers.iter().enumerate();
        let nodes = nodes.map(|(i, n)| node(&format!("n{i}"), &[], &gpu(n * 1_000)));
        let mut cluster = Cluster::new(nodes.collect());
        for (step, (kind, pods, pick)) in steps.iter().enumerate() {
            let before: BTreeSet<WorkloadId> = cluster.running.keys().cloned().collect();
            let shared_before = cluster.shared();

            if *kind == 0 && !before.is_empty() {
                let ended = before.iter().nth(pick % before.len()).expect("one of them");
                cluster.finish(&ended.0.clone());
            } else {
                let size = [200, 250, 400, 500, 700, 1_000, 2_000][*pick];
                // Workloads that cannot be evicted stay where they are placed first.
                let workload = job(&format!("w{step}"), *pods, &gpu(size));
                cluster.submit(Workload { resumable: false, ..workload });
            }

            let stayed: BTreeSet<WorkloadId> =
                before.iter().filter(|id| cluster.running.contains_key(id)).cloned().collect();
            let (earlier, now) =
                (fractions_of(&stayed, shared_before), fractions_of(&stayed, cluster.shared()));
            prop_assert_eq!(earlier, now, "GPU fractions moved");
            no_device_is_overfilled(&cluster, &offers)?;
            no_pod_waits_while_it_fits(&cluster, &offers)?;
        }
    }
}
