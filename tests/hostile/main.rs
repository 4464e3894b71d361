//! Law 17: no object, however malformed, stops decisions about others. Objects that are near real ones, and hostile, go
//! through the webhook and through the cache into the engine: no panic, no answer that is none, and no capacity that is
//! lost or left charged when the objects are gone.
//!
//! `make soak` draws a million cases; `PROPTEST_CASES` sets their number, and `HOSTILE_SLOW` prints the slow ones.

mod forms;
mod mangle;
mod objects;
mod reviews;
mod watched;

use std::time::{Duration, Instant};

use proptest::prelude::*;

/// The cases of each property without `PROPTEST_CASES`.
const CASES: u32 = 1_000;

/// Prints a case that takes long; how long a case may take depends on the machine.
fn timed<T>(case: &impl std::fmt::Debug, run: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = run();
    let limit =
        std::env::var("HOSTILE_SLOW").ok().and_then(|text| text.parse().ok()).map(Duration::from_millis);
    if limit.is_some_and(|limit| began.elapsed() > limit) {
        eprintln!("{:?} for {case:?}", began.elapsed());
    }
    result
}

fn config() -> ProptestConfig {
    let set = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { set.cases } else { CASES };
    ProptestConfig { cases, max_shrink_iters: 5_000, failure_persistence: None, ..set }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_review_gets_an_answer_that_can_be_carried_out(case in reviews::cases()) {
        timed(&case, || reviews::Webhook::with(|webhook| webhook.check(&case)))?;
    }

    #[test]
    fn no_sequence_of_objects_stops_the_engine_or_leaves_a_charge(case in watched::cases()) {
        timed(&case, || watched::check(&case))?;
    }
}
