use super::*;
use crate::engine::types::amount::Amount;

fn node(name: &str, free: i64) -> NodeView {
    let list = |gpus| ResourceList::from([("nvidia.com/gpu".into(), Amount::units(gpus))]);
    NodeView {
        name: name.into(),
        pool: "a100".into(),
        schedulable: true,
        not_ready: false,
        allocatable: list(8),
        free: list(free),
        workloads: Vec::new(),
        shared: Vec::new(),
    }
}

#[test]
fn a_scrape_has_fragments_and_series_before_their_first_event() {
    let metrics = Metrics::new().expect("distinct names");
    let queue = |team: &str| QueueView {
        team: team.into(),
        queue: "training".into(),
        pending: 2,
        oldest: Some(Time(1_000)),
        running: 0,
        paused: crate::engine::types::Paused::No,
    };
    let figures = Figures {
        queues: vec![queue("vision")],
        nodes: vec![node("n1", 3), node("n2", 3), node("n3", 8)],
        ..Figures::default()
    };
    let text = metrics.scrape(Some(&figures), Time(61_000)).expect("renders");
    for line in [
        r#"sluice_queue_depth{queue="training",team="vision"} 2"#,
        r#"sluice_queue_oldest_wait_seconds{queue="training",team="vision"} 60"#,
        r#"sluice_admitted_total{kind="borrowed",queue="training",team="vision"} 0"#,
        r#"sluice_evicted_total{reason="Reclaimed",team="vision"} 0"#,
        r#"sluice_evicted_total{reason="NodeLost",team="vision"} 0"#,
        r#"sluice_resized_total{cause="Shrunk",team="vision"} 0"#,
        r#"sluice_resized_total{cause="Moved",team="vision"} 0"#,
        r#"sluice_failed_total{reason="MaxWait",team="vision"} 0"#,
        r#"sluice_gpus_free{fragment="3",pool="a100"} 6"#,
        r#"sluice_gpus{kind="used",pool="a100"} 10"#,
        r#"sluice_api_writes_total{kind="admit",outcome="done"} 0"#,
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    let others = Figures { queues: vec![queue("speech")], ..Figures::default() };
    let text = metrics.scrape(Some(&others), Time(0)).expect("renders");
    assert!(!text.contains(r#"sluice_queue_depth{queue="training",team="vision"}"#));
    assert!(!text.contains(r#"sluice_resized_total{cause="Moved",team="vision"}"#));
    assert_eq!(metrics.scrape(None, Time(0)).expect("renders").lines().count(), text.lines().count());
}

#[test]
fn zero_amounts_and_overcommitment_have_series() {
    let metrics = Metrics::new().expect("distinct names");
    let gpus = |count| ResourceList::from([("nvidia.com/gpu".into(), Amount::units(count))]);
    let team = |name: &str, guaranteed, used| TeamView {
        team: name.into(),
        pool: "a100".into(),
        guaranteed,
        limit: ResourceList::new(),
        used,
        unadmitted: ResourceList::new(),
        borrowed: ResourceList::new(),
        lent: ResourceList::new(),
        fair_share: ResourceList::new(),
        past: ResourceList::new(),
        weight: 1,
        parent: None,
    };
    let figures = Figures {
        teams: vec![team("owner", gpus(8), ResourceList::new()), team("guest", ResourceList::new(), gpus(2))],
        oldest_within_guarantee: [("owner".into(), Time(1_000))].into(),
        overcommitments: vec![Overcommitment {
            team: None,
            pool: "a100".into(),
            at: Vec::new(),
            message: String::new(),
        }],
        ..Figures::default()
    };
    let text = metrics.scrape(Some(&figures), Time(31_000)).expect("renders");
    for line in [
        r#"sluice_team_resources{kind="used",pool="a100",resource="nvidia.com/gpu",team="owner"} 0"#,
        r#"sluice_team_resources{kind="lent",pool="a100",resource="nvidia.com/gpu",team="owner"} 0"#,
        r#"sluice_team_resources{kind="guaranteed",pool="a100",resource="nvidia.com/gpu",team="guest"} 0"#,
        r#"sluice_team_resources{kind="used",pool="a100",resource="nvidia.com/gpu",team="guest"} 2"#,
        r#"sluice_owed_oldest_wait_seconds{team="owner"} 30"#,
        r#"sluice_owed_oldest_wait_seconds{team="guest"} 0"#,
        r#"sluice_overcommitted{pool="a100",team=""} 1"#,
        r#"sluice_overcommitted{pool="a100",team="owner"} 0"#,
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains(r#"kind="limit""#), "no team has a limit");
}

#[test]
fn concurrent_scrapes_are_complete() {
    let metrics = Metrics::new().expect("distinct names");
    let nodes = (0..50).map(|n| NodeView { pool: format!("p{n}").into(), ..node("n", 3) }).collect();
    let figures = Figures { nodes, ..Figures::default() };
    let series = metrics.scrape(Some(&figures), Time(0)).expect("renders").lines().count();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let text = metrics.scrape(Some(&figures), Time(0)).expect("renders");
                    assert_eq!(text.lines().count(), series);
                }
            });
        }
    });
}

#[test]
fn accelerators_of_any_vendor_are_counted() {
    let tpus = |count| ResourceList::from([("google.com/tpu".into(), Amount::units(count))]);
    let mixed = NodeView { allocatable: tpus(4), free: tpus(1), ..node("n1", 0) };
    let team = TeamView {
        team: "vision".into(),
        pool: "a100".into(),
        guaranteed: tpus(4),
        limit: ResourceList::new(),
        used: ResourceList::new(),
        unadmitted: ResourceList::new(),
        borrowed: ResourceList::new(),
        lent: ResourceList::new(),
        fair_share: ResourceList::new(),
        past: ResourceList::new(),
        weight: 1,
        parent: None,
    };
    let figures = Figures { teams: vec![team], nodes: vec![mixed], ..Figures::default() };
    let scraped = |metrics: Metrics| metrics.scrape(Some(&figures), Time(0)).expect("renders");
    let metrics = || Metrics::new().expect("distinct names");
    let by_quota = scraped(metrics());
    assert!(by_quota.contains(r#"sluice_gpus{kind="allocatable",pool="a100"} 4"#), "{by_quota}");
    assert!(by_quota.contains(r#"sluice_gpus_free{fragment="1",pool="a100"} 1"#), "{by_quota}");
    let configured = Accelerators::configured(&["habana.ai/gaudi".to_owned()]);
    let by_setting = scraped(metrics().counting(configured));
    assert!(by_setting.contains(r#"sluice_gpus{kind="allocatable",pool="a100"} 0"#), "{by_setting}");
}

#[test]
fn units_of_shares_count_as_the_parts_of_gpus_that_they_are() {
    let slice = "nvidia.com/mig-1g.10gb";
    let slices = |count| ResourceList::from([(slice.into(), Amount::units(count))]);
    let node = NodeView { allocatable: slices(7), free: slices(2), ..node("n1", 0) };
    let shares = [("a100".into(), ResourceList::from([(slice.into(), Amount::milli(140))]))].into();
    let figures = Figures { nodes: vec![node], shares, ..Figures::default() };
    let text = Metrics::new().expect("distinct names").scrape(Some(&figures), Time(0)).expect("renders");
    for line in [
        r#"sluice_gpus{kind="allocatable",pool="a100"} 0.98"#,
        r#"sluice_gpus{kind="free",pool="a100"} 0.28"#,
        r#"sluice_gpus_free{fragment="0",pool="a100"} 0.28"#,
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}
