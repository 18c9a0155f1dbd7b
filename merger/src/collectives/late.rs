//! Which ranks the others wait for. In a collective in which everyone waits for everyone the last one to enter
//! makes each other one wait, from when that entered to when the last one did.

use super::agree::Participant;
use super::calls::Waits;
use super::judge::Kept;
use super::matching::Matched;
use crate::clock::{DomainFit, Method};
use crate::comm::Comm;
use crate::failure::Failure;
use rpd_shard::model::LocalNs;
use rpd_shard::record::{ClockDomain, wire};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ranks that are told.
const SHOWN: usize = 5;

/// How a rank kept others waiting.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LateRank {
    /// The rank; absent where the process has none.
    pub rank: Option<u32>,
    /// Its process id.
    pub pid: i32,
    /// Its node.
    pub host: String,
    /// How long others waited for it, all together, ns.
    pub waited_ns: i64,
    /// That is so much of all waiting for somebody who came last, from 0 to 1.
    pub waited_share: f64,
    /// Collectives to which it came last.
    pub last: u64,
    /// Collectives in which it took part.
    pub collectives: u64,
    /// How much later than the second last it came, where it was last: the middle one, ns.
    pub behind_ns: i64,
    /// The most that it was behind, ns.
    pub worst_ns: i64,
    /// What the clocks of the two may be off, ns: the middle one. `None` if nothing is known of them.
    pub clock_bar_ns: Option<i64>,
}

impl LateRank {
    /// Whether it was later than the clocks could make it seem.
    pub fn is_distinct(&self) -> bool {
        self.clock_bar_ns.is_some_and(|bar| self.behind_ns > bar)
    }
}

/// Number, waiting, how often last, collectives, behind, worst, bar.
type Brief = (u32, i64, u64, u64, i64, i64, i64);

/// What is summed up of one participant.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Sum {
    waited: i64,
    collectives: u64,
    /// For each collective to which it came last: how far behind the next, and what the clocks may be off; -1
    /// for not known.
    behind: Vec<(i64, i64)>,
}

/// The ranks that others waited for most, the same in all merge ranks. `fits` are by domain.
pub fn late_ranks(
    comm: &impl Comm,
    matched: &Matched,
    fits: &BTreeMap<ClockDomain, DomainFit>,
) -> Result<Vec<LateRank>, Failure> {
    let fit_of: Vec<Option<&DomainFit>> =
        matched.members.all.iter().map(|participant| fits.get(&participant.domain)).collect();
    let mut own: BTreeMap<u32, Sum> = BTreeMap::new();
    for kept in matched.kept.iter().filter(|kept| kept.waits == Waits::AllForAll) {
        add(kept, &matched.members.all, &fit_of, &mut own);
    }
    let mine: Vec<(u32, Sum)> = own.into_iter().collect();
    let mut outgoing = vec![Vec::new(); comm.size()];
    if let Some(to_first) = outgoing.first_mut() {
        *to_first = wire::encode(&mine);
    }
    drop(mine);
    let firsts = matched.members.firsts();
    let mut all: BTreeMap<u32, Sum> = BTreeMap::new();
    let incoming = comm.all_to_all(outgoing);
    for message in incoming.iter().filter(|_| comm.rank() == 0) {
        let theirs: Vec<(u32, Sum)> = wire::decode_message(message).map_err(Failure::message)?;
        for (participant, sum) in theirs {
            let first = firsts.get(participant as usize).copied().unwrap_or(participant);
            let known = all.entry(first).or_default();
            known.waited = known.waited.saturating_add(sum.waited);
            known.collectives += sum.collectives;
            known.behind.extend(sum.behind);
        }
    }
    let mut late: Vec<(u32, Sum)> = all.into_iter().filter(|(_, sum)| !sum.behind.is_empty()).collect();
    late.sort_by_key(|(participant, sum)| (std::cmp::Reverse(sum.waited), *participant));
    let in_all = late.iter().map(|(_, sum)| sum.waited).fold(0, i64::saturating_add);
    late.truncate(SHOWN);
    let told: (i64, Vec<Brief>) = (in_all, late.into_iter().map(|(p, s)| s.brief(p)).collect());
    let messages = comm.all_gather(if comm.rank() == 0 { wire::encode(&told) } else { Vec::new() });
    let (in_all, told): (i64, Vec<Brief>) = match messages.first() {
        Some(message) => wire::decode_message(message).map_err(Failure::message)?,
        None => (0, Vec::new()),
    };
    let rank = |(number, waited_ns, last, collectives, behind_ns, worst_ns, bar)| {
        let participant = matched.members.get(number)?;
        let clock_bar_ns = Some(bar).filter(|bar| *bar >= 0);
        let Participant { rank, pid, host, .. } = participant.clone();
        let waited_share = waited_ns as f64 / in_all.max(1) as f64;
        Some(LateRank {
            rank,
            pid,
            host,
            waited_ns,
            waited_share,
            last,
            collectives,
            behind_ns,
            worst_ns,
            clock_bar_ns,
        })
    };
    Ok(told.into_iter().filter_map(rank).collect())
}

impl Sum {
    fn brief(mut self, participant: u32) -> Brief {
        let last = self.behind.len() as u64;
        self.behind.sort_unstable();
        let middle = self.behind.get(self.behind.len() / 2).map_or(0, |b| b.0);
        let worst = self.behind.last().map_or(0, |b| b.0);
        // If one of them is not known, nothing is.
        let mut bars: Vec<i64> = self.behind.iter().map(|b| b.1).collect();
        bars.sort_unstable();
        let bar = match bars.first() {
            Some(0..) => bars.get(bars.len() / 2).copied().unwrap_or(-1),
            _ => -1,
        };
        (participant, self.waited, last, self.collectives, middle, worst, bar)
    }
}

/// Whether the times of all ranks are of one clock, or of clocks that are aligned.
pub(super) fn is_comparable(kept: &Kept, all: &[Participant], fit_of: &[Option<&DomainFit>]) -> bool {
    let domain = |participant: u32| all.get(participant as usize).map(|p| &p.domain);
    let is_aligned = |participant: u32| {
        let fit = fit_of.get(participant as usize).copied().flatten();
        fit.is_some_and(|fit| fit.method != Method::None)
    };
    let Some(first) = kept.guests.first() else { return false };
    kept.guests.iter().all(|guest| domain(guest.participant) == domain(first.participant))
        || kept.guests.iter().all(|guest| is_aligned(guest.participant))
}

/// Adds one collective.
fn add(kept: &Kept, all: &[Participant], fit_of: &[Option<&DomainFit>], sums: &mut BTreeMap<u32, Sum>) {
    if !is_comparable(kept, all, fit_of) {
        return;
    }
    let mut entered: Vec<(i64, u32, i64, LocalNs)> = Vec::with_capacity(kept.guests.len());
    for guest in &kept.guests {
        let enter = LocalNs(guest.enter);
        let map = |time| match fit_of.get(guest.participant as usize).copied().flatten() {
            Some(fit) => fit.map.map(time).ns(),
            None => time.0,
        };
        entered.push((map(enter), guest.participant, map(LocalNs(guest.exit)), enter));
        sums.entry(guest.participant).or_default().collectives += 1;
    }
    entered.sort_unstable_by_key(|e| (e.0, e.1));
    let [others @ .., last] = entered.as_slice() else { return };
    let Some(next) = others.last() else { return };
    let waits = others.iter().map(|other| last.0.min(other.2).saturating_sub(other.0).max(0));
    let domain = |participant: u32| all.get(participant as usize).map(|p| &p.domain);
    let bar = match domain(last.1) == domain(next.1) {
        true => Some(0),
        false => [last, next].iter().try_fold(0i64, |sum, one| {
            let fit = fit_of.get(one.1 as usize).copied().flatten()?;
            Some(sum.saturating_add(fit.bar_at(one.3)?))
        }),
    };
    let sum = sums.entry(last.1).or_default();
    sum.waited = waits.fold(sum.waited, i64::saturating_add);
    sum.behind.push((last.0.saturating_sub(next.0), bar.unwrap_or(-1)));
}
