//! What still looks as if effects came before their causes, and the least that makes it right.

use super::fit::DomainFit;
use super::observations::{Attendance, Meeting, Needs, Observations};
use super::time_map::{Cursor, TimeMap};

/// Rounds of warping; each one removes what the one before brought up.
const ROUNDS: usize = 8;

/// Collectives that a rank left before another one entered that it waits for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Causality {
    /// Pairs of ranks that were looked at: of each rank, the last one that it waited for.
    pub checked: u64,
    /// Pairs in the wrong order.
    pub violations: u64,
    /// The same, by the domain of the rank that left too early.
    pub by_domain: Vec<u64>,
    /// The worst of them, ns.
    pub worst: i64,
}

/// Counts what is in the wrong order under the maps of `fits`, which are one per domain.
pub fn causality(observations: &Observations, fits: &[DomainFit]) -> Causality {
    let mut found = Causality { by_domain: vec![0; fits.len()], ..Causality::default() };
    let mut cursors: Vec<Cursor<'_>> = fits.iter().map(|f| f.map.cursor()).collect();
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

/// Moves the maps so that as few collectives as possible are in the wrong order: each by no more than its bar,
/// the reference's not at all, and none backwards. Returns what is left, and the largest move, ns.
pub fn repair_causality(observations: &Observations, fits: &mut [DomainFit]) -> (Causality, i64) {
    let before: Vec<TimeMap> = fits.iter().map(|f| f.map.clone()).collect();
    let mut left = causality(observations, fits);
    for _ in 0..ROUNDS {
        if left.violations == 0 {
            break;
        }
        let wishes = wishes(observations, fits);
        let kept: Vec<TimeMap> = fits.iter().map(|f| f.map.clone()).collect();
        for ((fit, wishes), before) in fits.iter_mut().zip(wishes).zip(&before) {
            if let Some(map) = warped(fit, before, wishes) {
                fit.map = map;
            }
        }
        let after = causality(observations, fits);
        if after.violations >= left.violations {
            fits.iter_mut().zip(kept).for_each(|(fit, map)| fit.map = map);
            break;
        }
        left = after;
    }
    let moved = fits.iter().zip(&before).flat_map(|(fit, before)| {
        let bends =
            fit.map.bends().map(|x| fit.map.map(x).ns().saturating_sub(before.map(x).ns()).saturating_abs());
        bends.collect::<Vec<_>>()
    });
    let moved = moved.max().unwrap_or(0);
    (left, moved)
}

/// One rank, and the last of those that it waited for, in job times.
struct Wait<'a> {
    leaver: &'a Attendance,
    left: i64,
    enterer: &'a Attendance,
    entered: i64,
}

fn waits<'a>(meeting: &'a Meeting, cursors: &mut [Cursor<'_>], mut each: impl FnMut(Wait<'a>)) {
    let mut mapped: Vec<(&Attendance, i64, i64)> = Vec::with_capacity(meeting.attendances.len());
    for attendance in meeting.attendances.iter().filter(|a| a.exit >= a.enter) {
        if let Some(cursor) = cursors.get_mut(attendance.domain as usize) {
            mapped.push((attendance, cursor.map(attendance.enter).ns(), cursor.map(attendance.exit).ns()));
        }
    }
    let root = |rank: u32| mapped.iter().find(|m| m.0.rank == rank);
    let (enterer, leavers) = match meeting.needs {
        Needs::Nothing => return,
        Needs::AllOfAll | Needs::AllOfAllByTimes | Needs::RootOfAll(_) => {
            (mapped.iter().max_by_key(|m| (m.1, m.0.rank)), &mapped[..])
        }
        Needs::AllOfRoot(rank) => (root(rank), &mapped[..]),
    };
    let Some(&(enterer, entered, _)) = enterer else { return };
    let only = if let Needs::RootOfAll(rank) = meeting.needs { Some(rank) } else { None };
    for &(leaver, _, left) in leavers {
        if only.is_none_or(|rank| rank == leaver.rank) && leaver.domain != enterer.domain {
            each(Wait { leaver, left, enterer, entered });
        }
    }
}

/// By domain: (local time, by how much its job time should move). Who is less sure of its time gives way more.
fn wishes(observations: &Observations, fits: &[DomainFit]) -> Vec<Vec<(i64, i64)>> {
    let mut wishes = vec![Vec::new(); fits.len()];
    let mut cursors: Vec<Cursor<'_>> = fits.iter().map(|f| f.map.cursor()).collect();
    let room = |a: &Attendance, at| fits[a.domain as usize].bar_at(at).unwrap_or(0) as f64;
    for meeting in &observations.meetings {
        waits(meeting, &mut cursors, |wait| {
            let late = wait.entered.saturating_sub(wait.left);
            let (leaver, enterer) =
                (room(wait.leaver, wait.leaver.exit), room(wait.enterer, wait.enterer.enter));
            if late > 0 && leaver + enterer > 0.0 {
                let share = ((late as f64) * leaver / (leaver + enterer)).ceil() as i64;
                wishes[wait.leaver.domain as usize].push((wait.leaver.exit.0, share));
                wishes[wait.enterer.domain as usize].push((wait.enterer.enter.0, share.saturating_sub(late)));
            }
        });
    }
    wishes
}

/// A domain's map with the wishes granted, within the bar around the map that it had at first.
fn warped(fit: &DomainFit, before: &TimeMap, mut wishes: Vec<(i64, i64)>) -> Option<TimeMap> {
    if wishes.is_empty() || fit.bars.is_empty() {
        return None;
    }
    wishes.sort_unstable();
    // Of several wishes for one time the largest of each sign cancel out.
    let mut granted: Vec<(i64, i64)> = Vec::new();
    for at in wishes.chunk_by(|a, b| a.0 == b.0) {
        let (least, most) = at.iter().fold((0, 0), |(low, high), w| (w.1.min(low), w.1.max(high)));
        granted.push((at.first()?.0, least + most));
    }
    let moved = |local: i64| {
        let after = granted.partition_point(|w| w.0 <= local);
        match (after.checked_sub(1).and_then(|i| granted.get(i)), granted.get(after)) {
            (Some(a), Some(b)) => {
                let share = (local as f64 - a.0 as f64) / (b.0 as f64 - a.0 as f64).max(1.0);
                (a.1 as f64 + (b.1 as f64 - a.1 as f64) * share).round() as i64
            }
            (Some(end), None) | (None, Some(end)) => end.1,
            (None, None) => 0,
        }
    };
    let mut times: Vec<i64> = fit.map.bends().map(|x| x.0).chain(granted.iter().map(|w| w.0)).collect();
    times.sort_unstable();
    times.dedup();
    let points = times.into_iter().map(|local| {
        let at = rpd_shard::model::LocalNs(local);
        let (first, room) = (before.map(at).ns(), fit.bar_at(at).unwrap_or(0));
        let job = fit.map.map(at).ns().saturating_add(moved(local));
        (local, job.clamp(first.saturating_sub(room), first.saturating_add(room)))
    });
    Some(TimeMap::through(points.collect()))
}
