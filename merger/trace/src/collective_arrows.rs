//! Arrows of collectives that the borders of files cut.
//!
//! A file shows the arrows between the calls that begin in it. A collective whose calls begin in several files has one
//! arrow less for each of these but one.

use super::item::{COLLECTIVE_BIT, FlowEnd};
use super::time_slices::TimeSlices;
use rpd_comm::{Comm, all_gather_counts};
use rpd_console::Failure;
use rpd_shard::record::wire;

/// A call of a collective, where arrows end: number of the flow, and of the file in which the call begins.
type CollectiveEnd = (u64, u32);

/// Where arrows of collectives end, in a trace of several files.
#[derive(Debug, Default)]
pub(super) struct CollectiveEnds {
    ends: Vec<CollectiveEnd>,
    /// Maximum number of ends.
    limit: usize,
    /// Whether there were more, so that none are kept.
    is_full: bool,
}

impl CollectiveEnds {
    /// Keeps ends in at most `memory` bytes.
    pub(super) fn within(memory: u64) -> CollectiveEnds {
        let limit = usize::try_from(memory).unwrap_or(usize::MAX) / size_of::<CollectiveEnd>();
        CollectiveEnds { limit, ..CollectiveEnds::default() }
    }

    /// Adds an item that begins at `start`, ns in job time, if it is a call of a collective.
    #[inline]
    pub(super) fn add(&mut self, flows: &[FlowEnd], start: i64, files: &TimeSlices) {
        for flow in flows {
            if let FlowEnd::Through(number) = flow
                && number & COLLECTIVE_BIT != 0
                && let Some(file) = files.find(start)
            {
                self.extend([(*number, file as u32)]);
            }
        }
    }

    /// Adds the ends of another unit.
    pub(super) fn join(&mut self, other: CollectiveEnds) {
        self.is_full |= other.is_full;
        self.extend(other.ends);
    }

    /// Adds ends. Gives all up if they are more than the limit.
    fn extend(&mut self, ends: impl IntoIterator<Item = CollectiveEnd, IntoIter: ExactSizeIterator>) {
        let ends = ends.into_iter();
        self.is_full |= self.ends.len() + ends.len() > self.limit;
        if self.is_full {
            self.ends = Vec::new();
        } else {
            self.ends.extend(ends);
        }
    }

    /// Returns the number of arrows of all ranks that are missing because their calls begin in several files; `None` if
    /// the ends of a rank were too many. All ranks must call this.
    ///
    /// # Errors
    /// If a message of another rank is damaged.
    pub(super) fn count_cut(self, comm: &impl Comm) -> Result<Option<u64>, Failure> {
        let ranks = comm.size() as u64;
        let mut outgoing: Vec<Vec<CollectiveEnd>> = vec![Vec::new(); comm.size()];
        for end in self.ends {
            // The numbers are hashes, so that the ranks share them evenly.
            outgoing[(end.0 % ranks) as usize].push(end);
        }
        let outgoing = outgoing.iter().map(wire::encode).collect();
        let mut own: Vec<CollectiveEnd> = Vec::new();
        for message in comm.all_to_all(outgoing).iter().filter(|message| !message.is_empty()) {
            let ends: Vec<CollectiveEnd> =
                wire::decode_unlimited(message).map_err(Failure::damaged_message)?;
            own.extend(ends);
        }
        own.sort_unstable();
        own.dedup();
        let collectives = own.chunk_by(|one, other| one.0 == other.0).count();
        let counts = [(own.len() - collectives) as u64, u64::from(self.is_full)];
        let [mut cut, mut full] = [0, 0];
        for of_rank in all_gather_counts(comm, &counts)? {
            cut += of_rank.first().copied().unwrap_or(0);
            full += of_rank.last().copied().unwrap_or(0);
        }
        Ok((full == 0).then_some(cut))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rpd_comm::Solo;

    const FIRST: FlowEnd = FlowEnd::Through(COLLECTIVE_BIT | 1);
    const SECOND: FlowEnd = FlowEnd::Through(COLLECTIVE_BIT | 2);

    fn ends(items: &[(FlowEnd, i64)], memory: u64) -> CollectiveEnds {
        let files = TimeSlices::equal(0, 30, 3);
        let mut ends = CollectiveEnds::within(memory);
        items.iter().for_each(|(flow, start)| ends.add(&[*flow], *start, &files));
        ends
    }

    #[test]
    fn an_arrow_is_missing_between_two_files() {
        let cut = |items: &[(FlowEnd, i64)]| ends(items, 1_000).count_cut(&Solo).unwrap();
        assert_eq!(cut(&[]), Some(0));
        assert_eq!(cut(&[(FIRST, 1), (FIRST, 9), (SECOND, 12)]), Some(0));
        assert_eq!(
            cut(&[(FIRST, 1), (FIRST, 12), (FIRST, 13), (FIRST, 25), (SECOND, 9), (SECOND, 10)]),
            Some(3)
        );
        // Other flows, and calls outside of all files.
        let others = [FlowEnd::From(1 << 40), FlowEnd::To(1 << 40), FlowEnd::Through(5)];
        assert_eq!(cut(&others.map(|flow| (flow, 3))), Some(0));
        assert_eq!(cut(&[(FIRST, 1), (FIRST, -4), (FIRST, 30)]), Some(0));
    }

    #[test]
    fn too_many_calls_are_not_counted() {
        let one = || ends(&[(SECOND, 1)], 1_000);
        let mut some = ends(&[(FIRST, 1), (FIRST, 12)], 63);
        some.join(one());
        assert_eq!(some.ends.len(), 3);
        some.join(one());
        some.join(one());
        assert_eq!(some.count_cut(&Solo).unwrap(), None);
        assert_eq!(ends(&[(FIRST, 1), (FIRST, 12)], 31).count_cut(&Solo).unwrap(), None);
    }
}
