//! The stories of the demo, and that their files are what they say.

use anyhow::Context as _;
use sluice::scenario::Scenario;
use sluice_harness::World;
use sluice_harness::stories::Story;

use crate::support::SLUICE;

// Each of them on a cluster of its own is compared with the simulator in `parity`.
#[tokio::test(flavor = "multi_thread")]
async fn the_stories_can_be_told_one_after_the_other_on_one_cluster_as_the_demo_does() {
    World::run("stories", SLUICE, 1, async |world| {
        for story in Story::ALL {
            println!("{}", story.title());
            story.play(&world.cluster, &|told| println!("{told}")).await.context(story.title())?;
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
