//! The stories of the demo, and a check of their files.

use anyhow::Context as _;
use sluice::scenario::Scenario;
use sluice_harness::World;
use sluice_harness::stories::Story;

use crate::support::SLUICE;

// `parity` compares each of them, on a cluster of its own, with the simulator.
#[tokio::test(flavor = "multi_thread")]
async fn the_stories_of_the_demo_run_one_after_another_on_one_cluster() {
    World::run("stories", SLUICE, 1, async |world| {
        for story in Story::ALL {
            println!("{}", story.title());
            story.play(&world.cluster, &|sentence| println!("{sentence}")).await.context(story.title())?;
            Story::clear(&world.cluster).await?;
        }
        Ok(())
    })
    .await;
}

#[test]
fn the_files_of_the_stories_can_be_read() {
    for story in Story::ALL {
        if let Err(error) = Scenario::load(&[story.file()]) {
            panic!("{error}");
        }
    }
}
