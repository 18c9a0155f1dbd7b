//! Locates domains from the reference outwards. Each domain gets its track from its links to domains that
//! already have one, the most accurate first. Links need not form a tree: a domain with several links is
//! smoothed over all of them.

use super::links::{ClockLink, LinkKind};
use super::refuted::ProbedLinks;
use super::robust;
use super::smoother::{LinkNoise, TrackSample, smooth};
use super::track::ClockTrack;

/// Correction of a link: its constant error, and how much larger its noise is than stated.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrackCorrection {
    /// Constant error of xv - xu, ns.
    pub(super) bias: f64,
    /// Factor of the variances.
    pub(super) scale: f64,
}

/// A domain with its estimated track.
#[derive(Clone, Debug)]
pub(super) struct DomainTrack {
    pub(super) track: ClockTrack,
    /// Factor of the variances, estimated from this domain's samples.
    pub(super) scale: f64,
    /// How far a unit of each link's bias moves this domain's y.
    pub(super) leverage: Vec<(usize, f64)>,
    /// Number of samples from its own links.
    pub(super) samples: usize,
    /// Number of blocks of collectives on its own links that probes refute, and of all blocks.
    pub(super) refuted: (usize, usize),
    /// Number of domains that were located before it.
    pub(super) order: usize,
}

/// Returns the tracks of all domains that links reach. `corrections` are one per link. Collectives that `probed`
/// refutes are discarded.
pub(super) fn locate(
    (count, reference): (usize, usize),
    links: &[ClockLink],
    corrections: &[TrackCorrection],
    noise: LinkNoise,
    probed: Option<&ProbedLinks<'_>>,
) -> Vec<Option<DomainTrack>> {
    let mut located: Vec<Option<DomainTrack>> = vec![None; count];
    let mut order = 0;
    let mut of_domain: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (i, link) in links.iter().enumerate() {
        of_domain[link.u].push(i);
        of_domain[link.v].push(i);
    }
    // Sum of variances along the best path so far.
    let mut cost = vec![f64::INFINITY; count];
    // Domains without usable samples in their links.
    let mut lost = vec![false; count];
    let Some(start) = located.get_mut(reference) else { return located };
    *start = Some(DomainTrack {
        track: ClockTrack::default(),
        scale: 1.0,
        leverage: Vec::new(),
        samples: 0,
        refuted: (0, 0),
        order,
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
        located[next] = place(next, order + 1, own, noise, probed, &located);
        if located[next].is_none() {
            lost[next] = true;
            continue;
        }
        newest = next;
        order += 1;
    }
}

/// Returns the approximate variance that a link adds: the median of its pairs, divided by the square root of
/// their number.
fn expense(link: &ClockLink, scale: f64) -> f64 {
    let mut vars: Vec<f64> = link.pairs.iter().map(|p| p.var).collect();
    let count = vars.len() as f64;
    robust::median(&mut vars).map_or(f64::INFINITY, |var| (1.0 + var * scale / count.sqrt()).min(f64::MAX))
}

/// Locates one domain. `of_domain` has the indices of its links; `links` and `corrections` are those of all
/// domains.
fn place(
    domain: usize,
    order: usize,
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
        let (start, end) = parent.track.span().unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
        for pair in &link.pairs {
            let (own, theirs) = if link.v == domain {
                (pair.xv - corrections[i].bias, pair.xu)
            } else {
                (pair.xu, pair.xv - corrections[i].bias)
            };
            let at = parent.track.at(theirs);
            // If the parent's time is extrapolated or uncertain here, the sample is no more accurate.
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
    // Adds the variances of the parents. Their error is the same for all samples of this domain.
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
        knot.var += theirs.var;
        knot.cov += theirs.cov;
        knot.rate_var += theirs.rate_var;
        knot.slack += theirs.slack;
    }
    let leverage = leverage(domain, links, located, &samples, &smoothed.weights);
    Some(DomainTrack { track, scale: smoothed.scale, leverage, samples: samples.len(), refuted, order })
}

/// Returns the leverage of each link: its share of the weight of all samples, plus the leverage inherited from
/// parents.
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
