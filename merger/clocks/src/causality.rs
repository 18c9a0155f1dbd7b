//! Counts effects that still appear before their causes.

use super::fit::DomainFit;
use super::observations::{ClockObservations, ObservedWaits, RankInterval};
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

impl ClockObservations {
    /// Counts violations under the maps of `fits`, one for each domain.
    pub fn causality(&self, fits: &[DomainFit]) -> CausalityCheck {
        let mut found = CausalityCheck { by_domain: vec![0; fits.len()], ..CausalityCheck::default() };
        let mut cursors: Vec<MapCursor<'_>> = fits.iter().map(|f| f.map.cursor()).collect();
        let mut mapped: Vec<(&RankInterval, i64, i64)> = Vec::new();
        for collective in &self.collectives {
            mapped.clear();
            for interval in collective.intervals.iter().filter(|a| a.exit >= a.enter) {
                if let Some(cursor) = cursors.get_mut(interval.domain as usize) {
                    let (enter, exit) = (cursor.map(interval.enter).ns(), cursor.map(interval.exit).ns());
                    mapped.push((interval, enter, exit));
                }
            }
            let mut awaited = mapped.iter().filter(|(a, ..)| collective.waits.is_awaited(a.rank));
            let last = match collective.waits {
                ObservedWaits::AllForRoot(_) => awaited.next(),
                _ => awaited.max_by_key(|(a, enter, _)| (*enter, a.rank)),
            };
            let Some(&(last, entered, _)) = last else { continue };
            let waiting = mapped.iter().filter(|(a, ..)| collective.waits.is_waiting(a.rank));
            for (leaver, _, left) in waiting.filter(|(a, ..)| a.domain != last.domain) {
                found.checked += 1;
                let late = entered.saturating_sub(*left);
                if late > 0 {
                    found.violations += 1;
                    found.by_domain[leaver.domain as usize] += 1;
                    found.worst = found.worst.max(late);
                }
            }
        }
        found
    }
}
