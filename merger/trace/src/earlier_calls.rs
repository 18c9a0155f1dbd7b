//! Calls of earlier files that launched kernels of the current file. The file repeats them, as its arrows would begin
//! nowhere otherwise.

use super::item::{FlowEnd, TextId};
use rpd_perfetto::{Span, Timestamp};
use std::collections::HashMap;

/// Maximum number of flows of a unit that began and did not end yet. They need about 20 MiB. A stream of a GPU has far
/// fewer kernels that wait.
const MAX_OPEN_FLOWS: usize = 1 << 18;

/// A slice at which flows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowSource {
    /// Index of its track in the unit.
    pub(super) track: u32,
    pub(super) name: TextId,
    pub(super) category: TextId,
    /// Its times, since T0.
    pub(super) span: Span,
}

/// Flows of a unit that began and did not end yet.
#[derive(Debug, Default)]
pub(super) struct OpenFlows {
    sources: HashMap<u64, FlowSource>,
    /// Sources of flows that end in the current file, which itself has no part of them.
    earlier: Vec<(FlowSource, u64)>,
    without_source: u64,
}

impl OpenFlows {
    /// Begins a flow. Flows above the maximum are lost.
    pub(super) fn begin(&mut self, number: u64, source: FlowSource) {
        if self.sources.len() < MAX_OPEN_FLOWS {
            self.sources.insert(number, source);
        }
    }

    /// Returns whether a flow began and did not end.
    pub(super) fn is_open(&self, number: u64) -> bool {
        self.sources.contains_key(&number)
    }

    /// Ends a flow in the file that begins at `start`.
    pub(super) fn end(&mut self, number: u64, start: Timestamp) {
        match self.sources.remove(&number) {
            None => self.without_source += 1,
            Some(source) if source.span.start() < start && source.span.end() <= start => {
                self.earlier.push((source, number));
            }
            // The file has a part of the source, which repeats its flows.
            Some(_) => {}
        }
    }

    /// Removes the calls that the current file has to repeat, with their flows.
    pub(super) fn take_earlier(&mut self) -> Vec<(FlowSource, Vec<FlowEnd>)> {
        let mut earlier = std::mem::take(&mut self.earlier);
        earlier.sort_unstable_by_key(|(source, number)| {
            (source.track, source.span.start(), source.span.end(), source.name, *number)
        });
        let calls = earlier.chunk_by(|(one, _), (other, _)| one == other);
        let with_flows = |call: &[(FlowSource, u64)]| {
            let flows = call.iter().map(|(_, number)| FlowEnd::From(*number)).collect();
            call.first().map(|(source, _)| (*source, flows))
        };
        calls.filter_map(with_flows).collect()
    }

    /// Returns the number of flows that ended without a source.
    pub(super) fn without_source(&self) -> u64 {
        self.without_source
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_repeats_the_calls_before_it_once() {
        let at = |ns| Timestamp::new(ns).unwrap();
        let call = |track, from, to| FlowSource {
            track,
            name: TextId(1),
            category: TextId(2),
            span: Span::new(at(from), at(to)).unwrap(),
        };
        let mut flows = OpenFlows::default();
        let [graph, single, continuing, inside] =
            [call(3, 10, 20), call(1, 30, 40), call(1, 45, 60), call(1, 55, 56)];
        [(1, graph), (2, graph), (3, single), (4, continuing), (5, inside), (6, single)]
            .into_iter()
            .for_each(|(number, source)| flows.begin(number, source));
        for number in [2, 1, 3, 4, 5, 99] {
            flows.end(number, at(50));
        }
        let wanted = [(single, vec![FlowEnd::From(3)]), (graph, vec![FlowEnd::From(1), FlowEnd::From(2)])];
        assert_eq!(flows.take_earlier(), wanted);
        assert!(flows.take_earlier().is_empty());
        assert_eq!((flows.is_open(6), flows.is_open(3), flows.without_source()), (true, false, 1));
    }
}
