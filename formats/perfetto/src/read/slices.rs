//! Pairs beginnings and ends of slices.
//!
//! Within a sequence and track, each end belongs to the slice that began last, in file order. Writers of device
//! activity do not always write in time order, so times cannot be used here. Remaining beginnings and ends are
//! paired by time at the end of the file, because a slice may end on another thread.

use super::tracks::TrackPlace;
use rpd_shard::model::row_types::{EventKey, StringId, ThreadKey};
use std::collections::HashMap;

/// Maximum number of open slices plus ends that wait for their beginnings.
const MAX_WAITING: usize = 1 << 20;

/// A slice that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenSlice {
    pub(super) place_source: u32,
    pub(super) thread: ThreadKey,
    pub(super) start: i64,
    pub(super) name: StringId,
    pub(super) event: EventKey,
    /// Number of its args.
    pub(super) args: i64,
}

impl OpenSlice {
    pub(super) fn new(
        place: TrackPlace,
        start: i64,
        name: StringId,
        event: EventKey,
        args: i64,
    ) -> OpenSlice {
        OpenSlice { place_source: place.source, thread: place.thread, start, name, event, args }
    }
}

/// Slices without an end so far, and ends without a beginning.
#[derive(Debug, Default)]
pub(super) struct SlicePairs {
    open: HashMap<(u32, u64), Vec<OpenSlice>>,
    waiting: usize,
    /// Times of ends, by track.
    ends: HashMap<u64, Vec<i64>>,
}

/// Result for a slice or end that was not paired in file order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnpairedSlice {
    /// The slice ends at this time, on another sequence.
    Ended(OpenSlice, i64),
    /// The slice has no end.
    Open(OpenSlice),
    /// The end has no beginning.
    NotBegun(u64),
}

impl SlicePairs {
    /// Adds the beginning of a slice; returns `false` if too many are open.
    pub(super) fn begin(&mut self, sequence: u32, track: u64, open: OpenSlice) -> bool {
        let fits = self.waiting < MAX_WAITING;
        if fits {
            self.open.entry((sequence, track)).or_default().push(open);
            self.waiting += 1;
        }
        fits
    }

    /// Removes and returns the slice that ends next on a track.
    pub(super) fn end(&mut self, sequence: u32, track: u64) -> Option<OpenSlice> {
        let stack = self.open.get_mut(&(sequence, track))?;
        let open = stack.pop();
        if stack.is_empty() {
            self.open.remove(&(sequence, track));
        }
        self.waiting -= usize::from(open.is_some());
        open
    }

    /// Keeps an end without a beginning; returns `false` if there are too many.
    pub(super) fn stray_end(&mut self, track: u64, at: i64) -> bool {
        let fits = self.waiting < MAX_WAITING;
        if fits {
            self.ends.entry(track).or_default().push(at);
            self.waiting += 1;
        }
        fits
    }

    /// Returns the rest, track by track.
    pub(super) fn rest(self) -> Vec<UnpairedSlice> {
        let mut tracks: std::collections::BTreeMap<u64, (Vec<OpenSlice>, Vec<i64>)> = Default::default();
        for ((_, track), open) in self.open {
            tracks.entry(track).or_default().0.extend(open);
        }
        for (track, ends) in self.ends {
            tracks.entry(track).or_default().1.extend(ends);
        }
        let mut rest = Vec::new();
        for (track, (mut open, mut ends)) in tracks {
            open.sort_unstable_by_key(|open| (open.start, open.event));
            ends.sort_unstable();
            let (mut begun, mut next) = (Vec::new(), open.into_iter().peekable());
            for end in ends {
                while let Some(open) = next.next_if(|open| open.start <= end) {
                    begun.push(open);
                }
                rest.push(
                    begun
                        .pop()
                        .map_or(UnpairedSlice::NotBegun(track), |open| UnpairedSlice::Ended(open, end)),
                );
            }
            rest.extend(begun.into_iter().chain(next).map(UnpairedSlice::Open));
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(start: i64, event: i64) -> OpenSlice {
        let (thread, name, event) = (ThreadKey::new(1), StringId(1), EventKey::new(event));
        OpenSlice { place_source: 1, thread, start, name, event, args: 0 }
    }

    #[test]
    fn slices_end_in_the_order_of_their_sequence() {
        let mut slices = SlicePairs::default();
        // rocprof-sys writes overlapping kernels like this: each beginning is followed by its end.
        for (start, event) in [(10, 1), (15, 2)] {
            assert!(slices.begin(1, 7, open(start, event)));
            assert_eq!(slices.end(1, 7), Some(open(start, event)));
        }
        assert!(slices.begin(1, 7, open(1, 3)) && slices.begin(2, 7, open(2, 4)));
        assert_eq!(slices.end(2, 7), Some(open(2, 4)));
        assert_eq!(slices.end(2, 7), None);
        assert_eq!(slices.rest(), [UnpairedSlice::Open(open(1, 3))]);
    }

    #[test]
    fn what_is_left_is_paired_by_time() {
        let mut slices = SlicePairs::default();
        for (start, event) in [(10, 1), (20, 2), (50, 3)] {
            slices.begin(1, 7, open(start, event));
        }
        for at in [40, 5, 30] {
            slices.stray_end(7, at);
        }
        let (ended, rest) = (|start, event, at| UnpairedSlice::Ended(open(start, event), at), slices.rest());
        assert_eq!(
            rest,
            [
                UnpairedSlice::NotBegun(7),
                ended(20, 2, 30),
                ended(10, 1, 40),
                UnpairedSlice::Open(open(50, 3))
            ]
        );
    }
}
