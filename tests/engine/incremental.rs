//! Nobody is forgotten: the engine only looks at those for whom something has changed, and that finds
//! as much as looking at everybody.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_engine::Engine;
use sluice_engine::types::{Action, EvictReason};
use sluice_engine::types::{Event, Name, Pool, Time};

use super::ops::{Op, apply, build, ops, setup};
use super::world::World;

/// What the engine would decide if it looked at everybody: a pool that no node belongs to makes it do so,
/// and changes nothing.
fn decided_anew(engine: &Engine, now: Time) -> Vec<Action> {
    let mut engine = engine.clone();
    let selector: BTreeMap<Name, Name> = BTreeMap::from([("nobody".into(), "has this".into())]);
    let (name, weights) = ("empty".into(), BTreeMap::new());
    let pool = Pool { name, node_selector: selector, topology: Vec::new(), weights };
    engine.apply(Event::PoolApplied(pool), now);
    engine.plan(now).actions
}

fn nobody_is_forgotten(world: &World) -> Result<(), TestCaseError> {
    let mut missed = decided_anew(&world.engine, world.now);
    // A claim on the surplus may be made once more after any change from outside, as this was one.
    missed.retain(|action| {
        !matches!(action, Action::Evict { reason: EvictReason::FairShare | EvictReason::Preempted, .. })
    });
    prop_assert!(missed.is_empty(), "forgot {missed:?}\nafter\n{}", world.log.join("\n"));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn at_rest_looking_at_everybody_finds_nothing_to_do(
        setup in setup(), fair_users in any::<bool>(), ops in ops()
    ) {
        let mut world = build(&setup);
        for team in world.teams.values_mut() {
            team.fair_users = fair_users;
        }
        world.rebuild();
        for op in &ops {
            apply(&mut world, op);
            if matches!(op, Op::Finish(_) | Op::Delete(_) | Op::Quota { .. } | Op::Cordon { .. }) {
                world.settle();
                nobody_is_forgotten(&world)?;
            }
        }
        world.settle();
        nobody_is_forgotten(&world)?;
    }
}
