//! Teams and queues that a command names: an answer without rows may be of a name that is none.

use std::collections::BTreeSet;

use super::ask;
use super::cluster::Cluster;
use crate::view::TeamsRow;

/// Refuses the name of a team or queue that does not exist. It is asked only where there are no rows: those of the past may
/// be of a team that has gone.
///
/// # Errors
/// When there is no such team or queue, or the question is not answered.
pub async fn check(cluster: &Cluster, team: Option<&str>, queue: Option<&str>) -> anyhow::Result<()> {
    if team.is_none() && queue.is_none() {
        return Ok(());
    }
    match unknown(&ask::team_rows(cluster).await?, team, queue) {
        Some(problem) => Err(anyhow::Error::msg(problem)),
        None => Ok(()),
    }
}

/// Which of the names is none, and which there are.
fn unknown(rows: &[TeamsRow], team: Option<&str>, queue: Option<&str>) -> Option<String> {
    let queues = rows.iter().filter_map(|row| match row {
        TeamsRow::Queue(row) => Some((row.team.as_str(), row.queue.as_str())),
        _ => None,
    });
    let listed = rows.iter().filter_map(|row| match row {
        TeamsRow::Team(row) => Some(row.team.as_str()),
        _ => None,
    });
    let teams: BTreeSet<&str> = listed.chain(queues.clone().map(|(team, _)| team)).collect();
    if let Some(team) = team.filter(|team| !teams.contains(team)) {
        return Some(format!("no team {team}; {}", there_are(teams)));
    }
    let queues: BTreeSet<&str> =
        queues.filter(|(of, _)| team.is_none_or(|team| team == *of)).map(|(_, queue)| queue).collect();
    let queue = queue.filter(|queue| !queues.contains(queue))?;
    let of = team.map_or_else(String::new, |team| format!(" in team {team}"));
    Some(format!("no queue {queue}{of}; {}", there_are(queues)))
}

fn there_are(names: BTreeSet<&str>) -> String {
    match names.len() {
        0 => "there are none".to_owned(),
        1 => format!("there is {}", names.into_iter().collect::<String>()),
        _ => format!("there are {}", names.into_iter().collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::QueueRow;

    #[test]
    fn names_of_no_team_or_queue_are_told_with_those_that_there_are() {
        let row = |(team, queue): (&str, &str)| {
            let (team, queue) = (team.to_owned(), queue.to_owned());
            TeamsRow::Queue(QueueRow { team, queue, pending: 0, running: 0, oldest: None, paused: None })
        };
        let rows: Vec<TeamsRow> = [("a", "day"), ("a", "night"), ("b", "day")].map(row).into();
        for (team, queue, problem) in [
            (None, None, None),
            (Some("a"), Some("night"), None),
            (None, Some("night"), None),
            (Some("zz"), None, Some("no team zz; there are a, b")),
            (None, Some("zz"), Some("no queue zz; there are day, night")),
            (Some("b"), Some("night"), Some("no queue night in team b; there is day")),
        ] {
            assert_eq!(unknown(&rows, team, queue).as_deref(), problem, "{team:?} {queue:?}");
        }
        assert_eq!(unknown(&[], Some("a"), None).as_deref(), Some("no team a; there are none"));
    }
}
