//! The usage of a Team in one line, for the columns of `kubectl get teams`.

use std::collections::BTreeSet;

use crate::engine::types::amount::{Amount, ResourceList, ResourceName};
use crate::engine::types::{Name, TeamView};

/// The most amounts of a line.
const MOST: usize = 4;

/// Used of guaranteed and the borrowed part, such as `31/20 (+11)`, and the limits, each of every resource that the team's
/// quotas list. A team without quotas shows what it uses of devices.
#[must_use]
pub fn lines(views: &[&TeamView]) -> (String, String) {
    let listed = views.iter().flat_map(|view| {
        let of_quota = view.guaranteed.keys().chain(view.limit.keys());
        of_quota.map(|resource| (&view.pool, resource))
    });
    let mut cells: BTreeSet<(&Name, &ResourceName)> = listed.collect();
    if cells.is_empty() {
        let used = views.iter().flat_map(|view| view.used.keys().map(|resource| (&view.pool, resource)));
        cells = used.filter(|(_, resource)| resource.contains('/')).collect();
    }
    let distinct =
        |part: fn(&(&Name, &ResourceName)) -> String| cells.iter().map(part).collect::<BTreeSet<_>>().len();
    let pools = distinct(|(pool, _)| pool.to_string()) > 1;
    let resources = distinct(|(_, resource)| resource.to_string()) > 1;
    let label = |pool: &Name, resource: &ResourceName| {
        let pool = if pools { format!("{pool} ") } else { String::new() };
        // What stands before the slash is the vendor.
        let short = resource.rsplit('/').next().unwrap_or(resource);
        pool + &if resources { format!("{short} ") } else { String::new() }
    };
    let (mut usage, mut limits) = (Vec::new(), Vec::new());
    for (pool, resource) in cells {
        let Some(view) = views.iter().find(|view| view.pool == *pool) else { continue };
        let of = |list: &ResourceList| list.get(resource).copied().unwrap_or_default();
        let text = |amount: Amount| amount.quantity(resource);
        let borrowed = of(&view.borrowed);
        let more = if borrowed > Amount::ZERO { format!(" (+{})", text(borrowed)) } else { String::new() };
        let label = label(pool, resource);
        usage.push(format!("{label}{}/{}{more}", text(of(&view.used)), text(of(&view.guaranteed))));
        if let Some(limit) = view.limit.get(resource) {
            limits.push(format!("{label}{}", text(*limit)));
        }
    }
    (joined(usage), joined(limits))
}

fn joined(mut parts: Vec<String>) -> String {
    if parts.len() > MOST {
        let more = parts.len() - MOST;
        parts.truncate(MOST);
        parts.push(format!("{more} more"));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(
        pool: &str,
        guaranteed: &[(&str, i64)],
        used: &[(&str, i64)],
        borrowed: &[(&str, i64)],
    ) -> TeamView {
        let list = |list: &[(&str, i64)]| {
            list.iter().map(|(resource, amount)| ((*resource).into(), Amount::units(*amount))).collect()
        };
        TeamView {
            team: "vision".into(),
            parent: None,
            weight: 1,
            pool: pool.into(),
            guaranteed: list(guaranteed),
            limit: list(guaranteed),
            used: list(used),
            unadmitted: ResourceList::new(),
            borrowed: list(borrowed),
            lent: ResourceList::new(),
            fair_share: ResourceList::new(),
            past: ResourceList::new(),
        }
    }

    #[test]
    fn a_line_names_pools_and_resources_only_where_there_are_several() {
        let gpu = "nvidia.com/gpu";
        let one = view("default", &[(gpu, 20)], &[(gpu, 31), ("cpu", 9)], &[(gpu, 11)]);
        assert_eq!(lines(&[&one]), ("31/20 (+11)".into(), "20".into()));
        let idle = view("default", &[(gpu, 20)], &[], &[]);
        assert_eq!(lines(&[&idle]).0, "0/20", "nothing used is 0");
        let two = view("default", &[(gpu, 20), ("cpu", 8)], &[(gpu, 3)], &[]);
        assert_eq!(lines(&[&two]).0, "cpu 0/8, gpu 3/20");
        let other = view("h100", &[(gpu, 4)], &[(gpu, 4)], &[]);
        assert_eq!(lines(&[&one, &other]).0, "default 31/20 (+11), h100 4/4");
        let without = view("default", &[], &[(gpu, 2), ("cpu", 9)], &[(gpu, 2)]);
        assert_eq!(lines(&[&without]), ("2/0 (+2)".into(), String::new()));
        let many: Vec<TeamView> = (0..6).map(|at| view(&format!("p{at}"), &[(gpu, 1)], &[], &[])).collect();
        let line = lines(&many.iter().collect::<Vec<_>>()).0;
        assert_eq!(line, "p0 0/1, p1 0/1, p2 0/1, p3 0/1, 2 more");
        assert_eq!(lines(&[]), (String::new(), String::new()));
    }
}
