//! The stories of the demo, and that their files are what they say.

use sluice::scenario::Scenario;
use sluice_harness::World;
use sluice_harness::stories::Story;

use crate::support::SLUICE;

async fn play(name: &str, story: Story) {
    World::run(name, SLUICE, 1, async |world| story.play(&world.cluster, &|told| println!("{told}")).await)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_greedy_team_gives_back_exactly_what_the_owner_asks_for() {
    play("greedy", Story::GreedyTeam).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_jobs_are_packed_so_that_a_large_one_starts_at_once() {
    play("fragmentation", Story::Fragmentation).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_large_job_takes_back_one_node_and_the_youngest_go() {
    play("idle", Story::IdleQuota).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn higher_priority_goes_first_and_the_others_keep_their_order() {
    play("priority", Story::Priority).await;
}

#[test]
fn the_files_of_the_stories_can_be_read() {
    for story in Story::ALL {
        if let Err(error) = Scenario::load(&[story.file()]) {
            panic!("{error}");
        }
    }
}
