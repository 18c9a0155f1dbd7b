//! Aligns domains that are connected to each other by probes or collectives, but not to the reference.
//!
//! Such a part is fitted separately, relative to one domain of it (the head). The wall clock of the head
//! connects the whole part to the reference.

use super::fit::{DomainFit, ErrorKnot};
use super::method::AlignMethod;
use super::observations::{ClockObservations, RankInterval};
use super::time_map::TimeMap;
use rpd_shard::model::LocalNs;

/// Improves the fits that use only anchors. `aligned` fits a part to its head by probes and collectives.
pub(super) fn join_parts(
    observations: &ClockObservations,
    fits: &mut [DomainFit],
    aligned: impl Fn(&ClockObservations) -> Vec<DomainFit>,
) {
    let is_apart = |position: usize| match fits.get(position) {
        Some(fit) => fit.method == AlignMethod::RealtimeAnchors,
        // Bridges have no fit. Those on a path to the reference belong to no part.
        None => position < observations.domains.len() + observations.bridges.len(),
    };
    for members in parts(observations, is_apart) {
        let own = members.iter().copied().filter(|&m| m < fits.len());
        let Some(head) = own.min_by_key(|&m| observations.domains.get(m)) else { continue };
        let relative = aligned(&alone(observations, &members, head));
        let Some(anchored) = fits.get(head).cloned() else { continue };
        for &member in members.iter().filter(|&&m| m != head) {
            if let (Some(fit), Some(relative)) = (fits.get_mut(member), relative.get(member))
                && relative.method != AlignMethod::None
            {
                *fit = joined(relative, &anchored);
            }
        }
    }
}

/// Returns the groups of two or more domain indices that observations connect.
fn parts(observations: &ClockObservations, is_apart: impl Fn(usize) -> bool) -> Vec<Vec<usize>> {
    let count = observations.domains.len() + observations.bridges.len();
    let mut above: Vec<usize> = (0..count).collect();
    let mut join = |a: usize, b: usize| {
        if a < count && b < count && is_apart(a) && is_apart(b) {
            let (a, b) = (top(&mut above, a), top(&mut above, b));
            above[a.max(b)] = a.min(b);
        }
    };
    observations.bursts.iter().for_each(|burst| join(burst.from, burst.to));
    for collective in &observations.collectives {
        let domain = |a: &RankInterval| a.domain as usize;
        collective.intervals.windows(2).for_each(|two| join(domain(&two[0]), domain(&two[1])));
    }
    let mut groups = vec![Vec::new(); count];
    for position in (0..count).filter(|&p| is_apart(p)) {
        groups[top(&mut above, position)].push(position);
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// Returns the representative of a domain's group.
fn top(above: &mut [usize], mut position: usize) -> usize {
    while above[position] != position {
        above[position] = above[above[position]];
        position = above[position];
    }
    position
}

/// Returns the observations of a part.
fn alone(observations: &ClockObservations, members: &[usize], head: usize) -> ClockObservations {
    let is_in = |position: usize| members.binary_search(&position).is_ok();
    let bursts = observations.bursts.iter().filter(|b| is_in(b.from) && is_in(b.to)).cloned();
    let collectives =
        observations.collectives.iter().filter(|m| m.intervals.iter().all(|a| is_in(a.domain as usize)));
    ClockObservations {
        domains: observations.domains.clone(),
        bridges: observations.bridges.clone(),
        reference: head,
        sets: observations.sets.clone(),
        walls: observations.walls.clone(),
        bursts: bursts.collect(),
        collectives: collectives.cloned().collect(),
    }
}

/// Converts a fit relative to the head of a part to the reference, by the head's wall clock. The error of that
/// clock is common to the whole part, and no bound is certain.
fn joined(relative: &DomainFit, head: &DomainFit) -> DomainFit {
    let points = relative.map.bends().map(|at| (at.0, head.map.map(LocalNs(relative.map.map(at).ns())).ns()));
    let common = head.median_error_bound().unwrap_or(0);
    let bar = |bar: &ErrorKnot| ErrorKnot {
        offset: bar.offset.saturating_add(head.offset),
        bar: bar.bar.saturating_add(common),
        certain_bounds: None,
        growth: bar.growth.saturating_add(head.bars.last().map_or(0, |b| b.growth)),
        ..*bar
    };
    DomainFit {
        method: AlignMethod::RealtimeAnchors,
        map: TimeMap::through(points.collect()),
        offset: relative.offset.saturating_add(head.offset),
        bars: relative.bars.iter().map(bar).collect(),
        ..relative.clone()
    }
}
