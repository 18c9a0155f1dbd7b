//! Counts effects that still appear before their causes.

use super::fit::DomainFit;
use super::observations::{ClockObservations, CollectiveObservation, RankInterval, WaitRelation};
use super::time_map::MapCursor;

/// Collectives that a rank left before another one entered for which it waits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CausalityCheck {
    /// Number of checked pairs of ranks: each rank with the last one that it waited for.
    pub checked: u64,
    /// Number of pairs in the wrong order.
    pub violations: u64,
    /// Violations by the domain of the rank that left too early.
    pub by_domain: Vec<u64>,
    /// Largest violation, ns.
    pub worst: i64,
}

/// Counts violations under the maps of `fits`, one for each domain.
pub fn causality(observations: &ClockObservations, fits: &[DomainFit]) -> CausalityCheck {
    let mut found = CausalityCheck { by_domain: vec![0; fits.len()], ..CausalityCheck::default() };
    let mut cursors: Vec<MapCursor<'_>> = fits.iter().map(|f| f.map.cursor()).collect();
    for meeting in &observations.meetings {
        waits(meeting, &mut cursors, |wait| {
            found.checked += 1;
            let late = wait.entered.saturating_sub(wait.left);
            if late > 0 {
                found.violations += 1;
                found.by_domain[wait.leaver.domain as usize] += 1;
                found.worst = found.worst.max(late);
            }
        });
    }
    found
}

/// One rank, and the last of those that it waited for, in job time.
struct Wait<'a> {
    leaver: &'a RankInterval,
    left: i64,
    entered: i64,
}

fn waits<'a>(
    meeting: &'a CollectiveObservation,
    cursors: &mut [MapCursor<'_>],
    mut each: impl FnMut(Wait<'a>),
) {
    let mut mapped: Vec<(&RankInterval, i64, i64)> = Vec::with_capacity(meeting.attendances.len());
    for attendance in meeting.attendances.iter().filter(|a| a.exit >= a.enter) {
        if let Some(cursor) = cursors.get_mut(attendance.domain as usize) {
            mapped.push((attendance, cursor.map(attendance.enter).ns(), cursor.map(attendance.exit).ns()));
        }
    }
    let root = |rank: u32| mapped.iter().find(|m| m.0.rank == rank);
    let (enterer, leavers) = match meeting.needs {
        WaitRelation::Nothing => return,
        WaitRelation::AllOfAll | WaitRelation::AllOfAllByTimes | WaitRelation::RootOfAll(_) => {
            (mapped.iter().max_by_key(|m| (m.1, m.0.rank)), &mapped[..])
        }
        WaitRelation::AllOfRoot(rank) => (root(rank), &mapped[..]),
    };
    let Some(&(enterer, entered, _)) = enterer else { return };
    let only = if let WaitRelation::RootOfAll(rank) = meeting.needs { Some(rank) } else { None };
    for &(leaver, _, left) in leavers {
        if only.is_none_or(|rank| rank == leaver.rank) && leaver.domain != enterer.domain {
            each(Wait { leaver, left, entered });
        }
    }
}
