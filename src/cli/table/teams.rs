//! `sluice teams`: quotas and queues.

use crate::cli::grid::{self, Column, Form, Value, column};
use crate::cli::screen::Screen;
use crate::view::{Accelerators, Amounts, BudgetRow, QueueRow, Teams};

/// The quota of a team for one resource of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaLine {
    /// The team.
    pub team: String,
    pool: String,
    resource: String,
    guaranteed: String,
    limit: String,
    used: String,
    unadmitted: String,
    borrowed: String,
    lent: String,
    fair_share: String,
}

const QUOTAS: [Column<QuotaLine>; 10] = [
    column("team", "TEAM", Form::Cut(8), |row, _| Value::text(&row.team)),
    column("pool", "POOL", Form::Cut(7), |row, _| Value::text(&row.pool)),
    column("resource", "RESOURCE", Form::Cut(8), |row, _| Value::text(&row.resource)),
    column("guaranteed", "GUARANTEED", Form::Right, |row, _| Value::Amount(row.guaranteed.clone())),
    column("limit", "LIMIT", Form::Right, |row, _| Value::Amount(row.limit.clone())),
    column("used", "USED", Form::Right, |row, _| Value::Amount(row.used.clone())),
    column("unadmitted", "UNADMITTED", Form::Right, |row, _| Value::Amount(row.unadmitted.clone())),
    column("borrowed", "BORROWED", Form::Right, |row, _| Value::Amount(row.borrowed.clone())),
    column("lent", "LENT", Form::Right, |row, _| Value::Amount(row.lent.clone())),
    column("fair-share", "FAIR SHARE", Form::Right, |row, _| Value::Amount(row.fair_share.clone())),
];

const QUEUES: [Column<QueueRow>; 6] = [
    column("team", "TEAM", Form::Cut(8), |row, _| Value::text(&row.team)),
    column("queue", "QUEUE", Form::Cut(8), |row, _| Value::text(&row.queue)),
    column("pending", "PENDING", Form::Right, |row, _| count(row.pending)),
    column("running", "RUNNING", Form::Right, |row, _| count(row.running)),
    column("oldest", "OLDEST", Form::Right, |row, screen| {
        row.oldest.map_or(Value::None, |oldest| Value::Span(screen.since(oldest)))
    }),
    column("paused", "PAUSED", Form::Left, |row, _| row.paused.as_ref().map_or(Value::None, Value::text)),
];

const BUDGETS: [Column<BudgetRow>; 8] = [
    column("team", "TEAM", Form::Cut(8), |row, _| Value::text(&row.team)),
    column("budget", "BUDGET (GPU-H)", Form::Right, |row, _| Value::text(&row.amount)),
    column("used", "USED", Form::Right, |row, _| Value::text(&row.used)),
    column("percent", "%", Form::Right, |row, _| Value::Number(i64::from(row.used_percent))),
    column("committed", "COMMITTED", Form::Right, |row, _| Value::text(&row.committed)),
    column("period", "PERIOD", Form::Cut(5), |row, _| Value::text(&row.period)),
    column("refill", "FULL AGAIN", Form::Cut(10), |row, _| {
        row.refill.as_ref().map_or(Value::None, Value::text)
    }),
    column("then", "WHEN SPENT", Form::Cut(6), |row, _| Value::text(&row.on_exhausted)),
];

fn count(number: usize) -> Value {
    i64::try_from(number).map_or(Value::None, Value::Number)
}

/// The columns of quotas. Pods that were never admitted are rare, so their column appears with the first of them.
pub fn columns(teams: &Teams) -> Vec<&'static Column<QuotaLine>> {
    let with_unadmitted = teams.teams.iter().any(|row| !row.unadmitted.is_empty());
    const { &QUOTAS }.iter().filter(|column| with_unadmitted || column.name != "unadmitted").collect()
}

/// The quotas, one line for each resource: GPUs always, others only if the quota lists them.
pub fn lines(teams: &Teams, accelerators: &Accelerators) -> Vec<QuotaLine> {
    let mut lines = Vec::new();
    for row in &teams.teams {
        let lists = [&row.guaranteed, &row.limit, &row.used, &row.borrowed, &row.lent, &row.fair_share];
        let mut resources: Vec<&String> = lists.iter().flat_map(|list| list.keys()).collect();
        resources.sort();
        resources.dedup();
        resources.retain(|resource| {
            accelerators.contains(resource)
                || row.guaranteed.contains_key(*resource)
                || row.limit.contains_key(*resource)
        });
        let empty = QuotaLine {
            team: row.team.clone(),
            pool: row.pool.clone(),
            resource: "-".to_owned(),
            ..QuotaLine::default()
        };
        if resources.is_empty() {
            lines.push(empty.clone());
        }
        lines.extend(resources.into_iter().map(|resource| {
            let amount =
                |list: &Amounts, none: &str| list.get(resource).map_or(none, String::as_str).to_owned();
            QuotaLine {
                resource: resource.clone(),
                guaranteed: amount(&row.guaranteed, "0"),
                limit: amount(&row.limit, "-"),
                used: amount(&row.used, "0"),
                unadmitted: amount(&row.unadmitted, "0"),
                borrowed: amount(&row.borrowed, "0"),
                lent: amount(&row.lent, "0"),
                fair_share: amount(&row.fair_share, "0"),
                ..empty.clone()
            }
        }));
    }
    lines
}

/// Teams and their queues.
pub fn teams(teams: &Teams, lines: &[QuotaLine], screen: &Screen, headers: bool) -> String {
    // A paused queue is rare, so its column appears with the first one.
    let some_paused = teams.queues.iter().any(|row| row.paused.is_some());
    let queues: Vec<_> =
        const { &QUEUES }.iter().filter(|column| some_paused || column.name != "paused").collect();
    let quotas = grid::table(&columns(teams), lines, screen, headers);
    let mut text = format!("{quotas}\n\n{}", grid::table(&queues, &teams.queues, screen, headers));
    if !teams.budgets.is_empty() {
        let budgets: Vec<_> = const { &BUDGETS }.iter().collect();
        text.push_str(&format!("\n\n{}", grid::table(&budgets, &teams.budgets, screen, headers)));
    }
    for over in &teams.overcommitments {
        text.push_str(&format!("\n\nOvercommitted: {over}"));
    }
    for group in &teams.unadmitted {
        text.push_str(&format!("\n\nNot admitted, charged to team {}: {}", group.team, group.message));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::TeamRow;

    #[test]
    fn thousandths_are_decimals_for_people_and_exact_for_programs() {
        let share = Amounts::from([("nvidia.com/gpu".to_owned(), "19047m".to_owned())]);
        let row = TeamRow { team: "a".into(), fair_share: share, ..TeamRow::default() };
        let answer = Teams { teams: vec![row], ..Teams::default() };
        let (lines, screen) = (lines(&answer, &Accelerators::default()), Screen::new());
        let text = teams(&answer, &lines, &screen, true);
        assert!(text.contains("19.05") && !text.contains("19047m"), "{text}");
        let csv = grid::csv(&columns(&answer), &lines, &screen, false).expect("CSV");
        assert!(csv.contains("19047m"), "{csv}");
    }

    #[test]
    fn a_paused_queue_is_shown_where_there_is_one() {
        let queue = |name: &str, paused: Option<&str>| QueueRow {
            team: "a".into(),
            queue: name.into(),
            pending: 3,
            running: 0,
            oldest: None,
            paused: paused.map(Into::into),
        };
        let answer = |queues| Teams { queues, ..Teams::default() };
        let text = teams(&answer(vec![queue("day", None)]), &[], &Screen::new(), true);
        assert!(!text.contains("PAUSED"), "{text}");
        let text = teams(
            &answer(vec![queue("day", None), queue("night", Some("Drain"))]),
            &[],
            &Screen::new(),
            true,
        );
        let last = text.lines().last().unwrap_or_default();
        assert!(text.contains("PAUSED") && last.contains("night") && last.ends_with("Drain"), "{text}");
    }

    #[test]
    fn accelerators_of_any_vendor_are_in_the_table() {
        let amounts = |resource: &str| Amounts::from([(resource.to_owned(), "4".to_owned())]);
        let row = |guaranteed, used| TeamRow { team: "a".into(), guaranteed, used, ..TeamRow::default() };
        let rows = vec![
            row(amounts("google.com/tpu"), Amounts::new()),
            row(Amounts::new(), amounts("google.com/tpu")),
            row(Amounts::new(), amounts("rdma/hca")),
        ];
        let answer = Teams { teams: rows, ..Teams::default() };
        let accelerators = Accelerators::default().with_quotas(["google.com/tpu"]);
        let screen = Screen { width: Some(80), ..Screen::new() };
        let text = teams(&answer, &lines(&answer, &accelerators), &screen, true);
        assert_eq!(text.matches("google.com/tpu").count(), 2, "{text}");
        assert!(!text.contains("rdma/hca") && !text.contains("UNADMITTED"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(!text.contains("BUDGET"), "{text}");
        let budget = BudgetRow {
            team: "a".into(),
            amount: "10000".into(),
            used: "8000.5".into(),
            used_percent: 80,
            committed: "120".into(),
            period: "Month".into(),
            on_exhausted: "BorrowOnly".into(),
            refill: Some("2026-12-01".into()),
            ..BudgetRow::default()
        };
        let answer = Teams { budgets: vec![budget], ..answer };
        let text = teams(&answer, &lines(&answer, &accelerators), &screen, true);
        assert!(text.contains("8000.5") && text.contains("2026-12-01"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
