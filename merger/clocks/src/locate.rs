//! From the reference outwards: each domain gets its track from its links to the domains that already have
//! one, the surest first. Links need not be a tree; who is reached by several of them is smoothed through all.

use super::links::{ClockLink, LinkKind};
use super::refuted::ProbedLinks;
use super::robust;
use super::smoother::{LinkNoise, TrackSample, smooth};
use super::track::{ClockTrack, TrackKnot};

/// What a link is known to be wrong by, and by what its noise is larger than it says.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrackCorrection {
    /// Of xv - xu, ns.
    pub(super) bias: f64,
    /// Factor of the variances.
    pub(super) scale: f64,
}

/// A domain with its place in time.
#[derive(Clone, Debug)]
pub(super) struct DomainTrack {
    pub(super) track: ClockTrack,
    /// The factor of the variances that this domain's samples asked for.
    pub(super) scale: f64,
    /// By how much a unit of each link's bias moves this domain's y.
    pub(super) leverage: Vec<(usize, f64)>,
    /// How many samples its own links gave.
    pub(super) samples: usize,
    /// Blocks of collectives on its own links that the probes refute, and all of them.
    pub(super) refuted: (usize, usize),
    /// How many were located before it.
    pub(super) rank: usize,
}

/// The tracks of the domains that can be reached. `corrections` are one per link. Collectives that `probed` refutes
/// are left out.
pub(super) fn locate(
    (count, reference): (usize, usize),
    links: &[ClockLink],
    corrections: &[TrackCorrection],
    noise: LinkNoise,
    probed: Option<&ProbedLinks<'_>>,
) -> Vec<Option<DomainTrack>> {
    let mut located: Vec<Option<DomainTrack>> = vec![None; count];
    let mut rank = 0;
    let mut of_domain: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (i, link) in links.iter().enumerate() {
        of_domain[link.u].push(i);
        of_domain[link.v].push(i);
    }
    // The sum of variances along the best way so far.
    let mut cost = vec![f64::INFINITY; count];
    // Those whose links say nothing.
    let mut lost = vec![false; count];
    let Some(start) = located.get_mut(reference) else { return located };
    *start = Some(DomainTrack {
        track: ClockTrack::default(),
        scale: 1.0,
        leverage: Vec::new(),
        samples: 0,
        refuted: (0, 0),
        rank,
    });
    cost[reference] = 0.0;
    let mut newest = reference;
    loop {
        for &i in &of_domain[newest] {
            let other = links[i].across(newest);
            if located[other].is_none() {
                cost[other] = cost[other].min(cost[newest] + expense(&links[i], corrections[i].scale));
            }
        }
        let open = (0..count).filter(|&d| located[d].is_none() && !lost[d] && cost[d] < f64::INFINITY);
        let Some(next) = open.min_by(|&a, &b| cost[a].total_cmp(&cost[b])) else { return located };
        let own = (&of_domain[next][..], links, corrections);
        located[next] = place(next, own, noise, probed, &located);
        if located[next].is_none() {
            lost[next] = true;
            continue;
        }
        newest = next;
        rank += 1;
        if let Some(located) = &mut located[next] {
            located.rank = rank;
        }
    }
}

/// What a link adds to the variance, roughly: that of the middle one of its pairs, over their number.
fn expense(link: &ClockLink, scale: f64) -> f64 {
    let mut vars: Vec<f64> = link.pairs.iter().map(|p| p.var).collect();
    let count = vars.len() as f64;
    robust::median(&mut vars).map_or(f64::INFINITY, |var| (1.0 + var * scale / count.sqrt()).min(f64::MAX))
}

/// `links` are the numbers of the domain's own ones, and all with their corrections.
fn place(
    domain: usize,
    (of_domain, links, corrections): (&[usize], &[ClockLink], &[TrackCorrection]),
    noise: LinkNoise,
    probed: Option<&ProbedLinks<'_>>,
    located: &[Option<DomainTrack>],
) -> Option<DomainTrack> {
    let mut samples: Vec<TrackSample> = Vec::new();
    let mut refuted = (0, 0);
    for &i in of_domain {
        let link = &links[i];
        let Some(parent) = &located[link.across(domain)] else { continue };
        let end = parent.track.knots.last().map_or(f64::INFINITY, |k| k.x);
        let start = parent.track.knots.first().map_or(f64::NEG_INFINITY, |k| k.x);
        for pair in &link.pairs {
            let (own, theirs) = if link.v == domain {
                (pair.xv - corrections[i].bias, pair.xu)
            } else {
                (pair.xu, pair.xv - corrections[i].bias)
            };
            let at = parent.track.at(theirs);
            // Where the parent itself is only guessed, this is no more than a guess.
            let guessed = if theirs < start || theirs > end { at.var } else { at.slack * at.slack };
            let var = pair.var * corrections[i].scale + guessed;
            let sample = TrackSample {
                x: own,
                y: theirs + at.y - own,
                var,
                around: pair.around,
                link: i,
                kind: link.kind,
            };
            if !(sample.x.is_finite() && sample.y.is_finite() && sample.var.is_finite()) {
                continue;
            }
            if let (LinkKind::Collectives, Some(probed)) = (link.kind, probed) {
                refuted.1 += 1;
                if probed.refutes(domain, &sample) {
                    refuted.0 += 1;
                    continue;
                }
            }
            samples.push(sample);
        }
    }
    samples.sort_by(|a, b| a.x.total_cmp(&b.x).then(a.y.total_cmp(&b.y)).then(a.link.cmp(&b.link)));
    let smoothed = smooth(&samples, noise)?;
    let mut track = smoothed.track;
    // The parents' own variances come on top: theirs is the same error for all of this domain's samples.
    let mut nearest = 0;
    for knot in &mut track.knots {
        while samples
            .get(nearest + 1)
            .is_some_and(|s| (s.x - knot.x).abs() <= (samples[nearest].x - knot.x).abs())
        {
            nearest += 1;
        }
        let Some(parent) = &located[links[samples[nearest].link].across(domain)] else { continue };
        let theirs = parent.track.at(parent.track.x_at(knot.x + knot.y));
        add(knot, &theirs);
    }
    let leverage = leverage(domain, links, located, &samples, &smoothed.weights);
    Some(DomainTrack { track, scale: smoothed.scale, leverage, samples: samples.len(), refuted, rank: 0 })
}

fn add(knot: &mut TrackKnot, parent: &TrackKnot) {
    knot.var += parent.var;
    knot.cov += parent.cov;
    knot.rate_var += parent.rate_var;
    knot.slack += parent.slack;
}

/// Each link moves the domain as much as its samples count among all; a parent's leverage is passed on.
fn leverage(
    domain: usize,
    links: &[ClockLink],
    located: &[Option<DomainTrack>],
    samples: &[TrackSample],
    weights: &[f64],
) -> Vec<(usize, f64)> {
    let mut dense = vec![0.0; links.len()];
    let mut shares = vec![0.0; links.len()];
    for (sample, weight) in samples.iter().zip(weights) {
        shares[sample.link] += weight / sample.var.max(1.0);
    }
    let total: f64 = shares.iter().sum();
    for (i, share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
        let share = share / total;
        dense[i] += if links[i].v == domain { -share } else { share };
        let parent = located[links[i].across(domain)].as_ref();
        for &(link, lever) in parent.iter().flat_map(|p| &p.leverage) {
            dense[link] += share * lever;
        }
    }
    dense.into_iter().enumerate().filter(|(_, lever)| *lever != 0.0).collect()
}
