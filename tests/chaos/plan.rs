//! What happens in a soak: load and faults, drawn from a seed. The same seed and number of faults give the same plan.

use std::time::Duration;

use fastrand::Rng;

/// One step, after a pause.
#[derive(Clone, Debug)]
pub struct Step {
    /// The time since the step before.
    pub pause: Duration,
    /// What happens.
    pub act: Act,
}

/// What happens in a step.
#[derive(Clone, Debug)]
pub enum Act {
    /// Work is submitted.
    Submit(Load),
    /// A fault, with a number that chooses among the objects that are there.
    Fault(Fault, u64),
}

/// Submitted work.
#[derive(Clone, Debug)]
pub struct Load {
    /// What it is.
    pub kind: Kind,
    /// The namespace.
    pub namespace: &'static str,
    /// GPUs of each pod.
    pub gpus: i64,
    /// Pods.
    pub pods: i64,
    /// How long its pods run.
    pub runs: Duration,
    /// How long they take to end after a deletion.
    pub ends: Duration,
}

/// Kinds of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Job,
    Gang,
    RestartingGang,
    Elastic,
    Fixed,
    TimeLimited,
    Failing,
    SuspendedByUser,
    Impatient,
    Pod,
    PodGroup,
}

/// The kinds of work, with how often each comes.
const KINDS: [(Kind, u32); 11] = [
    (Kind::Job, 6),
    (Kind::Gang, 4),
    (Kind::RestartingGang, 2),
    (Kind::Elastic, 3),
    (Kind::Fixed, 2),
    (Kind::TimeLimited, 2),
    (Kind::Failing, 1),
    (Kind::SuspendedByUser, 1),
    (Kind::Impatient, 1),
    (Kind::Pod, 2),
    (Kind::PodGroup, 1),
];

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    KillLeader,
    KillStandby,
    StopReplica,
    FreezeReplica,
    SkewClock,
    RestartApiServer,
    RestartEtcd,
    RestartControllers,
    RestartScheduler,
    CutWatches,
    WebhookUnreachable,
    NodeDies,
    NodeComesBack,
    NodeIsDeleted,
    Cordon,
    EditGuarantee,
    EditLimit,
    EditQueue,
    DeleteTeam,
    MoveNamespace,
    UserDeletes,
    UserOrphans,
    UserSuspends,
    UserResumes,
    UserResumesWhileStopping,
    UserDeletesPod,
    UserForcesPod,
    UserEditsParallelism,
    UserEditsRecord,
    UserEditsTeamLabel,
    UserRemovesGates,
    UserDetachesPod,
    UserSetsDeadline,
    UserAddsFinalizer,
    UserBindsPod,
}

/// The faults, with how often each comes.
const FAULTS: [(Fault, u32); 35] = [
    (Fault::KillLeader, 5),
    (Fault::KillStandby, 2),
    (Fault::StopReplica, 3),
    (Fault::FreezeReplica, 3),
    (Fault::SkewClock, 3),
    (Fault::RestartApiServer, 1),
    (Fault::RestartEtcd, 1),
    (Fault::RestartControllers, 2),
    (Fault::RestartScheduler, 2),
    (Fault::CutWatches, 5),
    (Fault::WebhookUnreachable, 3),
    (Fault::NodeDies, 4),
    (Fault::NodeComesBack, 5),
    (Fault::NodeIsDeleted, 2),
    (Fault::Cordon, 3),
    (Fault::EditGuarantee, 4),
    (Fault::EditLimit, 4),
    (Fault::EditQueue, 2),
    (Fault::DeleteTeam, 1),
    (Fault::MoveNamespace, 2),
    (Fault::UserDeletes, 3),
    (Fault::UserOrphans, 3),
    (Fault::UserSuspends, 4),
    (Fault::UserResumes, 4),
    (Fault::UserResumesWhileStopping, 3),
    (Fault::UserDeletesPod, 3),
    (Fault::UserForcesPod, 3),
    (Fault::UserEditsParallelism, 4),
    (Fault::UserEditsRecord, 2),
    (Fault::UserEditsTeamLabel, 2),
    (Fault::UserRemovesGates, 2),
    (Fault::UserDetachesPod, 2),
    (Fault::UserSetsDeadline, 1),
    (Fault::UserAddsFinalizer, 1),
    (Fault::UserBindsPod, 1),
];

/// The namespaces of teams, one for each team, and `free`, which is of none.
pub const NAMESPACES: [&str; 4] = ["a", "b", "c", "free"];

/// Draws the load and that many faults.
pub fn draw(seed: u64, faults: usize) -> Vec<Step> {
    let mut rng = Rng::with_seed(seed);
    let mut steps: Vec<Step> =
        (0..6).map(|_| Step { pause: Duration::ZERO, act: submission(&mut rng) }).collect();
    for _ in 0..faults {
        for _ in 0..rng.u32(0..=2) {
            steps.push(Step { pause: millis(&mut rng, 0..=200), act: submission(&mut rng) });
        }
        let fault = weighted(&mut rng, &FAULTS);
        steps.push(Step { pause: millis(&mut rng, 50..=700), act: Act::Fault(fault, rng.u64(..)) });
    }
    steps
}

fn submission(rng: &mut Rng) -> Act {
    let kind = weighted(rng, &KINDS);
    let pods = match kind {
        Kind::Gang | Kind::RestartingGang | Kind::Elastic | Kind::PodGroup => rng.i64(2..=4),
        _ => 1,
    };
    let namespace = NAMESPACES[rng.usize(0..NAMESPACES.len())];
    let (runs, ends) = (millis(rng, 2_000..=14_000), millis(rng, 100..=5_000));
    Act::Submit(Load { kind, namespace, gpus: rng.i64(1..=2), pods, runs, ends })
}

fn millis(rng: &mut Rng, range: std::ops::RangeInclusive<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

fn weighted<T: Copy>(rng: &mut Rng, of: &[(T, u32)]) -> T {
    let mut left = rng.u32(0..of.iter().map(|(_, weight)| weight).sum());
    for (one, weight) in of {
        if left < *weight {
            return *one;
        }
        left -= weight;
    }
    of[0].0
}

#[test]
fn a_seed_gives_one_plan() {
    let text = |seed| format!("{:?}", draw(seed, 50));
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
    let faults = draw(3, 2_000);
    let drawn =
        |fault: Fault| faults.iter().any(|step| matches!(step.act, Act::Fault(one, _) if one == fault));
    assert!(FAULTS.iter().all(|(fault, _)| drawn(*fault)), "every fault comes");
}
