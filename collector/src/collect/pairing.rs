//! From the log of a thread to rows: beginnings wait for their ends.

use super::outbox::Outbox;
use crate::output::{Item, MpiRow, NameId, Span};
use rpd_ring::mpi;
use rpd_ring::record::{COMM_SELF, COMM_WORLD, MpiCall, Record};
use std::collections::HashMap;

/// Most ranges and calls that are kept open, per thread and per process. The library stops long
/// before; a ring full of nonsense does not.
const MOST_OPEN: usize = 1 << 18;
/// Communicators that are told apart, per process.
const MOST_COMMUNICATORS: usize = 1 << 16;

/// What is open in a thread, outermost first.
#[derive(Default)]
pub(super) struct ThreadLog {
    open: Vec<Open>,
}

#[derive(Clone, Copy)]
struct Open {
    span: Span,
    /// An MPI call, not a range.
    call: Option<MpiRow>,
}

/// What the threads of a process share.
#[derive(Default)]
pub(super) struct ProcessLog {
    /// Number in the shard.
    source: u32,
    /// Stack ids given so far.
    stacks: i64,
    /// Ranges with an id, which any thread may stop.
    ranges: HashMap<u64, Span>,
    /// Stops that were read before their start: it is in the ring of another thread.
    stops: HashMap<u64, i64>,
    communicators: HashMap<u64, Communicator>,
}

struct Communicator {
    name: NameId,
    collectives: i64,
    others: i64,
}

/// A record that fits nothing: the row that it would have made is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Misfit;

impl ProcessLog {
    pub(super) fn new(source: u32) -> ProcessLog {
        ProcessLog { source, ..ProcessLog::default() }
    }

    /// Takes one record of a thread; rows that are complete go out.
    #[inline]
    pub(super) fn apply(
        &mut self,
        log: &mut ThreadLog,
        thread: i64,
        record: Record<'_>,
        out: &mut Outbox,
    ) -> Result<(), Misfit> {
        match record {
            Record::Push { time, name } => {
                let span = self.begin(log, thread, time, out.name(name));
                log.push(Open { span, call: None })
            }
            Record::Pop { time } => {
                let open = log.close(|open| open.call.is_none()).ok_or(Misfit)?;
                out.push(Item::Range(Span { end: Some(time), ..open.span }));
                Ok(())
            }
            Record::RangeStart { time, id, name } => {
                let span = self.begin(log, thread, time, out.name(name));
                if let Some(end) = self.stops.remove(&id) {
                    out.push(Item::Range(Span { end: Some(end), ..span }));
                } else if self.ranges.len() < MOST_OPEN {
                    self.ranges.insert(id, span);
                } else {
                    return Err(Misfit);
                }
                Ok(())
            }
            Record::RangeStop { time, id } => {
                match self.ranges.remove(&id) {
                    Some(span) => out.push(Item::Range(Span { end: Some(time), ..span })),
                    // Its start may still come, or was dropped and counted.
                    None if self.stops.len() < MOST_OPEN => {
                        self.stops.insert(id, time);
                    }
                    None => {}
                }
                Ok(())
            }
            Record::Mark { time, name } => {
                let span = self.begin(log, thread, time, out.name(name));
                out.push(Item::Mark(span));
                Ok(())
            }
            Record::MpiEnter { time, call } => {
                let name = out.function(call.function).ok_or(Misfit)?;
                let span = self.begin(log, thread, time, name);
                let call = self.call(&call, out);
                log.push(Open { span, call: Some(call) })
            }
            Record::MpiExit { time } => {
                let open = log.close(|open| open.call.is_some()).ok_or(Misfit)?;
                open.emit(Some(time), out);
                Ok(())
            }
        }
    }

    fn begin(&mut self, log: &ThreadLog, thread: i64, start: i64, name: NameId) -> Span {
        self.stacks += 1;
        let parent = log.open.last().map_or(0, |open| open.span.stack);
        Span { source: self.source, thread, start, end: None, name, stack: self.stacks, parent }
    }

    fn call(&mut self, call: &MpiCall, out: &mut Outbox) -> MpiRow {
        let communicator = call.comm.map(|handle| self.communicator(handle, out));
        let numbered = communicator.map(|communicator| {
            // Collectives are counted by themselves: the n-th one is the same in all ranks of a
            // communicator, while messages differ from rank to rank.
            let count = if mpi::is_collective(call.function) {
                &mut communicator.collectives
            } else {
                &mut communicator.others
            };
            *count += 1;
            (communicator.name, *count)
        });
        MpiRow {
            comm: numbered.map(|(name, _)| name),
            peer: call.peer,
            root: call.root,
            tag: call.tag,
            bytes: call.bytes,
            seq: numbered.map(|(_, seq)| seq),
        }
    }

    fn communicator(&mut self, handle: u64, out: &mut Outbox) -> &mut Communicator {
        // Past the limit all others are one.
        let full = self.communicators.len() >= MOST_COMMUNICATORS;
        let handle = if full && !self.communicators.contains_key(&handle) { u64::MAX - 2 } else { handle };
        let named = self.communicators.keys().filter(|h| **h != COMM_WORLD && **h != COMM_SELF);
        let next = if self.communicators.contains_key(&handle) { 0 } else { named.count() + 1 };
        self.communicators.entry(handle).or_insert_with(|| {
            let name = match handle {
                COMM_WORLD => out.name(b"MPI_COMM_WORLD"),
                COMM_SELF => out.name(b"MPI_COMM_SELF"),
                _ => out.name(format!("comm-{next}").as_bytes()),
            };
            Communicator { name, collectives: 0, others: 0 }
        })
    }

    /// The thread records nothing more: what is open in it stays open.
    pub(super) fn end_thread(&mut self, log: ThreadLog, out: &mut Outbox) {
        for open in log.open {
            open.emit(None, out);
        }
    }

    /// The process records nothing more: ranges without stop stay open.
    pub(super) fn end(&mut self, out: &mut Outbox) {
        let mut spans: Vec<Span> = self.ranges.drain().map(|(_, span)| span).collect();
        spans.sort_unstable_by_key(|span| span.stack);
        for span in spans {
            out.push(Item::Range(span));
        }
        self.stops.clear();
    }
}

impl ThreadLog {
    fn push(&mut self, open: Open) -> Result<(), Misfit> {
        if self.open.len() >= MOST_OPEN {
            return Err(Misfit);
        }
        self.open.push(open);
        Ok(())
    }

    /// Takes out the innermost one of a sort. Mostly that is the last: a range may begin in a
    /// callback inside of an MPI call and end after it, or the reverse.
    fn close(&mut self, sort: impl Fn(&Open) -> bool) -> Option<Open> {
        let at = self.open.iter().rposition(sort)?;
        Some(self.open.remove(at))
    }
}

impl Open {
    fn emit(self, end: Option<i64>, out: &mut Outbox) {
        let span = Span { end, ..self.span };
        out.push(match self.call {
            Some(call) => Item::Mpi(span, call),
            None => Item::Range(span),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Output;
    use proptest::prelude::*;

    /// Name, start, end, stack id, parent's stack id.
    type Row = (String, i64, Option<i64>, i64, i64);

    /// Applies the log of one thread, and ends it. Returns its rows, and how many records were misfits.
    fn rows(log: &[Record<'_>]) -> (Vec<Row>, usize) {
        let mut out = Outbox::new(Output::into_nothing());
        let (mut process, mut thread) = (ProcessLog::new(1), ThreadLog::default());
        let misfits =
            log.iter().filter(|record| process.apply(&mut thread, 1, **record, &mut out).is_err()).count();
        process.end_thread(thread, &mut out);
        process.end(&mut out);
        let mut names = Vec::new();
        let mut rows = Vec::new();
        for item in out.items() {
            match item {
                Item::Name(name) => names.push(String::from_utf8_lossy(name).into_owned()),
                Item::Range(span) | Item::Mark(span) | Item::Mpi(span, _) => {
                    let name = names[span.name.0 as usize].clone();
                    rows.push((name, span.start, span.end, span.stack, span.parent));
                }
                _ => {}
            }
        }
        (rows, misfits)
    }

    fn call(function: mpi::MpiFunction, comm: Option<u64>) -> MpiCall {
        MpiCall { function: function as u32, comm, ..MpiCall::default() }
    }

    #[test]
    fn ends_close_the_innermost_of_their_sort() {
        let barrier = call(mpi::MpiFunction::MPI_Barrier, Some(COMM_WORLD));
        let log = [
            Record::Push { time: 1, name: b"a" },
            Record::MpiEnter { time: 2, call: barrier },
            Record::Mark { time: 3, name: b"in" },
            Record::Push { time: 4, name: b"b" },
            Record::MpiExit { time: 5 },
            Record::RangeStart { time: 6, id: 9, name: b"r" },
            Record::Pop { time: 7 },
            Record::Pop { time: 8 },
        ];
        let row = |name: &str, start, end, stack, parent| (name.to_owned(), start, end, stack, parent);
        let expected = vec![
            row("in", 3, None, 3, 2),
            row("MPI_Barrier", 2, Some(5), 2, 1),
            row("b", 4, Some(7), 4, 2),
            row("a", 1, Some(8), 1, 0),
            row("r", 6, None, 5, 4),
        ];
        assert_eq!(rows(&log), (expected, 0));
    }

    #[test]
    fn ends_without_beginning_are_misfits() {
        let unknown = MpiCall { function: 100_000, ..MpiCall::default() };
        let log = [
            Record::Pop { time: 1 },
            Record::MpiExit { time: 2 },
            Record::MpiEnter { time: 3, call: unknown },
        ];
        assert_eq!(rows(&log), (Vec::new(), 3));
    }

    #[test]
    fn calls_are_numbered_per_communicator() {
        use mpi::MpiFunction::{MPI_Barrier, MPI_Bcast, MPI_Init, MPI_Send};
        let mut out = Outbox::new(Output::into_nothing());
        let (mut process, mut thread) = (ProcessLog::new(1), ThreadLog::default());
        let calls = [
            (MPI_Init, None),
            (MPI_Barrier, Some(COMM_WORLD)),
            (MPI_Send, Some(COMM_WORLD)),
            (MPI_Bcast, Some(77)),
            (MPI_Bcast, Some(COMM_WORLD)),
            (MPI_Bcast, Some(88)),
            (MPI_Bcast, Some(77)),
        ];
        for (function, comm) in calls {
            let enter = Record::MpiEnter { time: 1, call: call(function, comm) };
            process.apply(&mut thread, 1, enter, &mut out).unwrap();
            process.apply(&mut thread, 1, Record::MpiExit { time: 2 }, &mut out).unwrap();
        }
        let mut names = Vec::new();
        let mut numbered = Vec::new();
        for item in out.items() {
            match item {
                Item::Name(name) => names.push(String::from_utf8_lossy(name).into_owned()),
                Item::Mpi(_, call) => {
                    numbered.push(call.comm.zip(call.seq).map(|(c, s)| (names[c.0 as usize].clone(), s)));
                }
                _ => {}
            }
        }
        let pair = |name: &str, seq| Some((name.to_owned(), seq));
        let world = |seq| pair("MPI_COMM_WORLD", seq);
        let expected =
            [None, world(1), world(1), pair("comm-1", 1), world(2), pair("comm-2", 1), pair("comm-1", 2)];
        assert_eq!(numbered, expected);
    }

    proptest! {
        /// Any log: a row for every beginning, stack ids that are unique, parents that came before.
        #[test]
        fn every_beginning_is_one_row(kinds in proptest::collection::vec((0u8..7, 0u64..4), 0..200)) {
            let barrier = call(mpi::MpiFunction::MPI_Barrier, Some(5));
            let log: Vec<Record<'_>> = kinds.iter().zip(1i64..).map(|((kind, id), time)| match kind {
                0 => Record::Push { time, name: b"p" },
                1 => Record::Pop { time },
                2 => Record::RangeStart { time, id: *id + 10 * time as u64, name: b"s" },
                3 => Record::RangeStop { time, id: *id + 10 * (time as u64).saturating_sub(1) },
                4 => Record::Mark { time, name: b"m" },
                5 => Record::MpiEnter { time, call: barrier },
                _ => Record::MpiExit { time },
            }).collect();
            let begun = log.iter().filter(|record| matches!(record, Record::Push { .. } | Record::RangeStart { .. }
                | Record::Mark { .. } | Record::MpiEnter { .. })).count();
            let (rows, _) = rows(&log);
            prop_assert_eq!(rows.len(), begun);
            let mut stacks: Vec<i64> = rows.iter().map(|row| row.3).collect();
            stacks.sort_unstable();
            prop_assert_eq!(stacks, (1..=begun as i64).collect::<Vec<_>>());
            for (_, start, end, stack, parent) in &rows {
                prop_assert!(parent < stack && end.is_none_or(|end| end >= *start));
            }
        }
    }
}
