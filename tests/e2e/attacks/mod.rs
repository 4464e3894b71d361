//! Ways around the quota, each as a user would try it. A route is refused with a sentence, or what it starts is charged and
//! ended; all the time an observer samples what the team's pods hold.

mod books;
mod hostile;
mod operators;
mod routes;
mod stage;

use sluice_harness::World;

use self::stage::Stage;
use crate::support::SLUICE;

#[tokio::test(flavor = "multi_thread")]
async fn no_route_holds_more_than_the_limit_or_escapes_the_books() {
    World::run("attacks", SLUICE, 1, async |world| {
        let mut stage = Stage::set(world).await?;
        stage.route("shrink and grow", routes::shrink_and_grow).await?;
        stage.route("orphans", routes::orphans).await?;
        stage.route("detached pods", routes::detached_pods).await?;
        stage.route("DaemonSet", routes::daemon_set).await?;
        stage.route("system priority", routes::system_priority).await?;
        stage.route("owner of an admitted Job", routes::owner_of_an_admitted_job).await?;
        stage.route("owner of a Job over a restart", routes::owner_over_a_restart).await?;
        stage.route("forged owners", routes::forged_owners).await?;
        stage.route("record forged away", routes::record_forged_away).await?;
        stage.route("grace of a year", routes::grace_of_a_year).await?;
        stage.route("forged group", routes::forged_group).await?;
        stage.route("node in the template", routes::node_in_the_template).await?;
        stage.route("resize by a forged owner", routes::resize_by_a_forged_owner).await?;
        stage.route("owner of a namespace", routes::owner_of_a_namespace).await?;
        stage.route("label of a namespace", routes::label_of_a_namespace).await?;
        operators::serve_kinds(&stage).await?;
        stage.route("bare RayCluster", operators::bare_cluster).await?;
        stage.route("RayCluster of a RayJob", operators::cluster_of_a_job).await?;
        stage.route("undercounted RayJob", operators::undercount).await?;
        stage.route("scale subresource", operators::scale).await?;
        stage.verdict()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_never_admitted_is_charged_and_makes_room() {
    World::run("unadmitted", SLUICE, 1, async |world| {
        let mut stage = Stage::set(world).await?;
        stage.route("above the limit", books::above_the_limit).await?;
        stage.route("room for the team", books::room_for_the_team).await?;
        stage.route("room for an owner", books::room_for_an_owner).await?;
        stage.route("restart", books::restart).await?;
        stage.route("adoption", books::adoption).await?;
        stage.route("adopted DaemonSet", books::adopted_daemon_set).await?;
        stage.verdict()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_object_of_a_user_stops_decisions_about_others() {
    World::run("hostile", SLUICE, 1, async |world| {
        let mut stage = Stage::set(world).await?;
        operators::serve_kinds(&stage).await?;
        stage.route("many terms", hostile::many_terms).await?;
        stage.route("many resources", hostile::many_resources).await?;
        stage.route("many gates", hostile::many_gates).await?;
        stage.route("product of terms", hostile::product_of_terms).await?;
        stage.verdict()
    })
    .await;
}
