//! Arrows between the calls that send messages and the calls that receive them.
//!
//! Readers draw a flow from the slice that began first, and drop one whose end they see before its beginning. So an arrow
//! begins at the receive if this waited for the send.
//!
//! Merge rank 0 matches the messages of the run as rpd-report does. Every merge rank gets the ends in its units.

use super::draw::JobRows;
use super::item::FlowEnd;
use super::time_slices::TimeSlices;
use super::units::RankUnits;
use rpd_calls::{AnalysisMemory, ReadOptions, RunCalls};
use rpd_comm::{Comm, agree_on_result, all_gather_values, broadcast_result};
use rpd_console::wording::noun;
use rpd_console::{Exit, Failure};
use rpd_run::{RowUnit, RunDatabase};
use rpd_shard::model::rocpd;
use rpd_shard::record::wire;
use std::collections::{BTreeMap, HashMap};

/// One end of an arrow at a region of this merge rank: key of the region, and number of the arrow, shifted by one bit. The
/// lowest bit is set where the arrow begins.
type PackedEnd = (i64, u64);

/// A call at an end of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct MessageCall {
    /// Time at which it begins, ns in job time.
    start: i64,
    unit: u64,
    region: i64,
}

/// The messages of a run that are drawn.
#[derive(Debug, Default)]
pub(super) struct MessageArrows {
    /// On merge rank 0, the times at which both calls of each message begin, the first one first, ns in job time.
    starts: Vec<(i64, i64)>,
    /// Sends and receives whose other end is not known.
    without_partner: u64,
    /// Messages of which a call is in no unit.
    without_slice: u64,
    /// Why no messages are drawn.
    problem: Option<String>,
}

impl MessageArrows {
    /// Matches the messages of the run, and gives `rows` the ends in the units of this merge rank. `memory` is the number
    /// of bytes that this rank may use. All ranks must call this.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub(super) fn find(
        comm: &impl Comm,
        rows: &mut JobRows,
        units: &RankUnits,
        memory: u64,
    ) -> Result<MessageArrows, Failure> {
        if !rows.draws_messages() || !RunCalls::may_have_messages(rows.run()) {
            return Ok(MessageArrows::default());
        }
        let owners: Vec<(u64, u64)> = all_gather_values(comm, &units.bounds())?;
        rows.keep_units(units.bounds());
        let memory = Some(AnalysisMemory { limit: memory, other: 0 });
        let options = ReadOptions { keeps_row_keys: true, memory, ..ReadOptions::default() };
        let calls = match agree_on_result(comm, RunCalls::gather(rows.run(), comm, &options)) {
            Ok(calls) => calls,
            Err(failure) if failure.exit() == Exit::Usage => {
                return Ok(MessageArrows { problem: Some(failure.to_string()), ..MessageArrows::default() });
            }
            Err(failure) => return Err(failure),
        };
        let mut arrows = MessageArrows::default();
        let mut outgoing: Vec<Vec<PackedEnd>> = owners.iter().map(|_| Vec::new()).collect();
        let matched = calls.map_or(Ok(()), |calls| arrows.add(rows.run(), &calls, &owners, &mut outgoing));
        agree_on_result(comm, matched)?;
        let outgoing = outgoing.into_iter().map(|ends| wire::encode(&ends)).collect();
        let mut own: Vec<PackedEnd> = Vec::new();
        for message in comm.all_to_all(outgoing).iter().filter(|message| !message.is_empty()) {
            let ends: Vec<PackedEnd> = wire::decode_unlimited(message).map_err(Failure::damaged_message)?;
            own.extend(ends);
        }
        own.sort_unstable();
        rows.set_messages(own);
        Ok(arrows)
    }

    /// Adds the messages of a run. Each merge rank owns the units from the first to before the second number.
    fn add(
        &mut self,
        run: &RunDatabase,
        calls: &RunCalls,
        owners: &[(u64, u64)],
        outgoing: &mut [Vec<PackedEnd>],
    ) -> Result<(), Failure> {
        let units = UnitsOfProcesses::new(run);
        let starts = &mut self.starts;
        let find = |(timeline, call): (u32, u32)| -> Option<MessageCall> {
            let of = calls.job.timelines.get(timeline as usize)?;
            let start = of.calls.get(call as usize)?.enter_ns;
            let region = *calls.region_ids.get(timeline as usize)?.get(call as usize)?;
            let process = calls.processes.get(of.process as usize)?.run_process;
            // Files have the units in their order, so that it decides between equal times.
            Some(MessageCall { start, unit: units.of(process, region)? as u64, region })
        };
        let mut add_end = |call: &MessageCall, end: u64| {
            // Units are shared out in order; ranks without units have an empty range.
            let owner = owners.partition_point(|(_, end)| *end <= call.unit);
            if let Some(outgoing) = outgoing.get_mut(owner) {
                outgoing.push((call.region, end));
            }
        };
        let without_slice = &mut self.without_slice;
        let without_partner = calls.job.each_message(|send, receive| {
            let Some((send, receive)) = find(send).zip(find(receive)) else {
                *without_slice += 1;
                return;
            };
            if send == receive {
                // A call that sends to its own process.
                return;
            }
            let number = starts.len() as u64;
            let (first, second) = (send.min(receive), send.max(receive));
            add_end(&first, number << 1 | 1);
            add_end(&second, number << 1);
            starts.push((first.start, second.start));
        });
        self.without_partner = without_partner.map_err(|error| Failure::input(error.to_string()))?;
        Ok(())
    }

    /// Adds messages without an arrow to the rows that are not drawn. All ranks must call this.
    pub(super) fn count_not_drawn(
        &self,
        comm: &impl Comm,
        windows: &TimeSlices,
        not_drawn: &mut BTreeMap<String, u64>,
    ) -> Result<(), Failure> {
        let is_cut = |(first, second): &&(i64, i64)| windows.find(*first) != windows.find(*second);
        let cut = || self.starts.iter().filter(is_cut).count() as u64;
        let count = || Ok((self.without_partner, self.without_slice, cut()));
        let (without_partner, without_slice, cut): (u64, u64, u64) = broadcast_result(comm, count)?;
        let calls = if without_partner == 1 { "send or receive" } else { "sends and receives" };
        for (count, what) in [
            (without_partner, format!("{calls} without a recorded and certain other end: without an arrow")),
            (
                without_slice,
                format!("{} of a call that is not drawn: without an arrow", noun(without_slice, "message")),
            ),
            (cut, format!("{} with calls in two files: without an arrow", noun(cut, "message"))),
        ] {
            if count > 0 {
                not_drawn.insert(what, count);
            }
        }
        Ok(())
    }

    /// Returns a warning, if the messages are not drawn.
    pub(super) fn warning(&self) -> Option<String> {
        self.problem.as_ref().map(|problem| format!("messages are drawn without arrows: {problem}"))
    }
}

/// Unpacks an end of an arrow. Numbers of messages are smaller than those of flows in units.
#[inline]
pub(super) fn unpack(end: u64) -> FlowEnd {
    let number = 1 + (end >> 1);
    if end & 1 == 1 { FlowEnd::From(number) } else { FlowEnd::To(number) }
}

/// The units with rows of each process.
struct UnitsOfProcesses<'a> {
    run: &'a RunDatabase,
    claimed: HashMap<usize, usize>,
    unclaimed: Option<usize>,
}

impl UnitsOfProcesses<'_> {
    fn new(run: &RunDatabase) -> UnitsOfProcesses<'_> {
        let units = run.units.iter().enumerate();
        let claimed = units.clone().filter(|(_, unit)| !unit.is_unclaimed);
        let claimed = claimed.filter_map(|(place, unit)| Some((*unit.processes.first()? as usize, place)));
        let unclaimed = units.clone().find(|(_, unit)| unit.is_unclaimed).map(|(place, _)| place);
        UnitsOfProcesses { run, claimed: claimed.collect(), unclaimed }
    }

    /// Returns the unit of a process that has this region.
    fn of(&self, process: usize, region: i64) -> Option<usize> {
        let has = |unit: &RowUnit| unit.has_ids_in(rocpd::REGION, (region, region));
        let claimed = self.claimed.get(&process).copied();
        claimed.filter(|unit| self.run.units.get(*unit).is_some_and(has)).or(self.unclaimed)
    }
}
