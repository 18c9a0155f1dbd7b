//! Finds the collectives of a process that has only regions: their calls have no number, and their communicators
//! have no name. The calls are numbered in order of time and used only if all processes made the same calls, see
//! [`super::unnumbered`].
//!
//! An RCCL call ends before the operation does, so the times of the kernel that it launched are used.
//!
//! Torch's profiler records the process group of an RCCL call and mostly its number in the group. For gloo it
//! records no group, and gloo's threads start neighbouring calls in any order.

use super::functions::{CollectiveFunction, MessageCall};
use super::own_time::MpiBefore;
use super::process_calls::{CollectiveCall, ProcessCollectives};
use super::sample::CallSample;
use rpd_shard::model::{Local, Rows, TableId, Value, rocpd};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use twox_hash::XxHash3_64;

/// Maximum number of regions of one process that are read.
const MAX_REGIONS: usize = 1 << 20;
/// Maximum number of calls of a sequence that are kept to show where it differs from another one.
const MAX_SPECS: usize = 1 << 14;
/// Maximum number of characters that are kept of a process group's name.
const MAX_GROUP_CHARACTERS: usize = 200;
/// Names of RCCL kernels contain one of these.
const KERNEL_NAMES: [&str; 2] = ["ncclDevKernel", "ncclKernel"];

/// Columns that are read from each table.
const REGION: [&str; 4] = ["name_id", "event_id", "start", "end"];
const ARG: [&str; 3] = ["event_id", "name", "value"];
const EVENT: [&str; 2] = ["stack_id", "correlation_id"];
const SYMBOL: [&str; 2] = ["kernel_name", "display_name"];
const DISPATCH: [&str; 4] = ["event_id", "kernel_id", "start", "end"];

/// Passes the rows of one table of a source to a callback.
pub(crate) type ReadRegions<'a> = dyn FnMut(TableId, &mut dyn FnMut(&Rows<Local>)) + 'a;

/// Properties of a call on which all ranks of a communicator must agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RegionSpec {
    function: CollectiveFunction,
    size: Option<i64>,
    datatype: u64,
    root: Option<u32>,
}

impl RegionSpec {
    /// Describes the call: function, size and root.
    pub fn describe(&self) -> String {
        self.function.describe(self.size, self.root)
    }
}

/// The calls of a process on one communicator, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallSequence {
    /// Hash of the name that is generated for the communicator.
    pub comm: u64,
    /// Index of the communicator among those of the process, from 0, by first use.
    pub place: u32,
    /// Number of calls.
    pub len: u64,
    /// Hash of all calls.
    pub digest: u64,
    /// The first calls.
    pub specs: Vec<RegionSpec>,
    /// Whether the communicator has a name that is the same in all processes.
    pub is_named: bool,
    /// Whether torch's profiler recorded the calls. It may start and stop at any time, so that some processes
    /// may have more calls than others.
    pub is_torch: bool,
}

impl CallSequence {
    fn new(comm: u64, place: u32, is_named: bool) -> CallSequence {
        CallSequence { comm, place, len: 0, digest: 0, specs: Vec::new(), is_named, is_torch: true }
    }

    /// Returns a hash for each call; equal hashes mean equal calls. Returns `None` if not all calls are kept.
    pub(super) fn hashes(&self) -> Option<Vec<u64>> {
        let is_whole = self.specs.len() as u64 == self.len;
        is_whole.then(|| self.specs.iter().map(|spec| digest(0, spec)).collect())
    }
}

/// A region that is a collective.
struct Found {
    call: CollectiveCall,
    /// Hash of the communicator's handle; 0 if there is none.
    handle: u64,
    datatype: u64,
    has_bytes: bool,
    kernel: Kernel,
    /// Process group and number of the call, where torch recorded them.
    group: Option<Box<str>>,
    seq: Option<u64>,
    /// Whether torch recorded the call.
    is_torch: bool,
}

/// The kernel dispatches that a call launched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kernel {
    None,
    /// One dispatch, and whether its name is that of an RCCL kernel.
    One {
        start: i64,
        end: i64,
        is_rccl: bool,
    },
    /// Several dispatches, none of which can be identified as the kernel of the operation.
    Many,
}

impl Kernel {
    fn add(self, start: i64, end: i64, is_rccl: bool) -> Kernel {
        match self {
            Kernel::None => Kernel::One { start, end, is_rccl },
            Kernel::One { is_rccl: false, .. } if is_rccl => Kernel::One { start, end, is_rccl },
            Kernel::One { is_rccl: true, .. } if !is_rccl => self,
            Kernel::One { .. } | Kernel::Many => Kernel::Many,
        }
    }
}

/// Names of regions among the strings of an input.
#[derive(Debug, Default)]
pub struct RegionNames {
    /// Ids of strings that name a collective.
    functions: BTreeMap<i64, CollectiveFunction>,
    /// Whether a string names a call in which a rank may wait for messages.
    has_messages: bool,
}

impl RegionNames {
    /// Classifies a string and records its id if it names a collective.
    pub fn add(&mut self, id: i64, text: &[u8]) {
        if let Some(function) = CollectiveFunction::named(text) {
            self.functions.insert(id, function);
        }
        self.has_messages |= MessageCall::is_message(text);
    }

    /// Returns whether no string names a collective.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Returns the columns that [`RegionNames::find_collectives`] reads from a table. No other column is
    /// required.
    pub fn columns(table: TableId) -> &'static [&'static str] {
        match table {
            rocpd::REGION => &REGION,
            rocpd::ARG => &ARG,
            rocpd::EVENT => &EVENT,
            rocpd::INFO_KERNEL_SYMBOL => &SYMBOL,
            rocpd::KERNEL_DISPATCH => &DISPATCH,
            _ => &[],
        }
    }

    /// Returns the collectives among the regions of a source. If there are messages, own times are not known,
    /// because the time that ranks wait in them is not evaluated.
    pub fn find_collectives(&self, read: &mut ReadRegions<'_>, sample: &CallSample) -> ProcessCollectives {
        let mut process = ProcessCollectives::default();
        if self.is_empty() {
            return process;
        }
        let mut found: Vec<Found> = Vec::new();
        let mut by_event: HashMap<i64, usize> = HashMap::new();
        let mut all = 0;
        read(rocpd::REGION, &mut |rows| {
            let [ids, events, starts, ends] = REGION.map(|column| rows.column(column));
            for i in 0..rows.len {
                let Some(function) = ids.int(i).and_then(|id| self.functions.get(&id)) else { continue };
                let Some(enter) = starts.int(i) else { continue };
                all += 1;
                if found.len() >= MAX_REGIONS {
                    continue;
                }
                if let Some(event) = events.int(i) {
                    by_event.insert(event, found.len());
                }
                found.push(new_found(*function, enter, ends.int(i)));
            }
        });
        // An incomplete sequence cannot be compared with others.
        if all > MAX_REGIONS || found.is_empty() {
            process.alone = all as u64;
            return process;
        }
        read(rocpd::ARG, &mut |rows| args(rows, &by_event, &mut found));
        // Torch uses the same args for waiting and for messages, so the group of calls outside RCCL is ignored.
        found.iter_mut().filter(|f| !f.call.function.is_rccl()).for_each(|f| f.group = None);
        if found.iter().any(|f| f.call.function.is_rccl()) {
            kernels(read, &by_event, &mut found);
        }
        number(found, &mut process);
        process.hides_messages = self.has_messages;
        let mpi_before = (!self.has_messages).then_some(MpiBefore { thread: 0, ns: 0, poll_gaps_ns: 0 });
        process.calls.iter_mut().for_each(|call| call.mpi_before = mpi_before);
        sample.count(process.calls.iter().map(|call| call.key));
        process.thin_out(sample.level());
        process
    }
}

impl Found {
    /// Replaces the times of an RCCL host call, which do not show when the operation ran, by those of its
    /// kernel.
    fn times_of_kernel(&mut self) {
        if self.call.function.is_rccl() {
            self.call.exit = None;
            if let Kernel::One { start, end, .. } = self.kernel
                && end >= start
            {
                (self.call.enter, self.call.exit) = (start, Some(end));
            }
        }
    }
}

fn new_found(function: CollectiveFunction, enter: i64, exit: Option<i64>) -> Found {
    let exit = exit.filter(|exit| *exit >= enter && !function.only_starts());
    Found {
        call: CollectiveCall::new(function, enter, exit),
        handle: 0,
        datatype: 0,
        has_bytes: false,
        kernel: Kernel::None,
        group: None,
        seq: None,
        is_torch: function.is_gloo() || function.is_by_args(),
    }
}

/// Reads the args of the calls.
fn args(rows: &Rows<Local>, by_event: &HashMap<i64, usize>, found: &mut [Found]) {
    let [events, names, values] = ARG.map(|column| rows.column(column));
    for i in 0..rows.len {
        let place = events.int(i).and_then(|event| by_event.get(&event));
        let (Some(found), Value::Text(name)) = (place.and_then(|p| found.get_mut(*p)), names.get(i)) else {
            continue;
        };
        let value = values.get(i);
        let text = value.text_lossy().unwrap_or_default();
        let number = || text.trim().parse::<i64>().ok().filter(|n| *n >= 0);
        match name {
            b"collective" if found.call.function.is_by_args() => {
                found.call.function = CollectiveFunction::of_torch(&text).unwrap_or(found.call.function);
            }
            b"comm" if found.is_torch => {
                found.handle = XxHash3_64::oneshot(text.as_bytes()).max(1);
                found.group = Some(text.chars().take(MAX_GROUP_CHARACTERS).collect::<String>().into());
            }
            b"seq" if found.is_torch => found.seq = number().and_then(|seq| u64::try_from(seq).ok()),
            b"comm" => found.handle = XxHash3_64::oneshot(text.as_bytes()).max(1),
            b"datatype" | b"sendtype" => found.datatype = XxHash3_64::oneshot(text.as_bytes()),
            b"root" => found.call.root = number().and_then(|root| u32::try_from(root).ok()),
            b"bytes" if number().is_some() => {
                (found.call.size, found.has_bytes) = (number(), true);
            }
            b"count" | b"sendcount" | b"recvcount" if !found.has_bytes => {
                found.call.size = number().or(found.call.size);
            }
            _ => {}
        }
    }
}

/// Finds the kernel of each RCCL call: the dispatch with the same stack id or, if torch recorded the call, with
/// the same correlation id.
fn kernels(read: &mut ReadRegions<'_>, by_event: &HashMap<i64, usize>, found: &mut [Found]) {
    let mut by_stack: HashMap<i64, usize> = HashMap::new();
    let mut by_correlation: HashMap<i64, usize> = HashMap::new();
    let stack = |rows: &Rows<Local>, i| rows.column(EVENT[0]).get(i).stack_id().filter(|stack| *stack != 0);
    let correlation = |rows: &Rows<Local>, i| rows.column(EVENT[1]).int(i).filter(|id| *id != 0);
    read(rocpd::EVENT, &mut |rows| {
        for i in 0..rows.len {
            let place = by_event.get(&rows.keys.get(i)).copied();
            let place = place.filter(|p| found.get(*p).is_some_and(|f| f.call.function.is_rccl()));
            if let (Some(place), Some(stack)) = (place, stack(rows, i)) {
                by_stack.insert(stack, place);
            }
            let of_torch = place.filter(|p| found.get(*p).is_some_and(|f| f.is_torch));
            if let (Some(place), Some(correlation)) = (of_torch, correlation(rows, i)) {
                by_correlation.insert(correlation, place);
            }
        }
    });
    let mut launched: HashMap<i64, usize> = HashMap::new();
    read(rocpd::EVENT, &mut |rows| {
        for i in 0..rows.len {
            let event = rows.keys.get(i);
            let place = stack(rows, i).and_then(|stack| by_stack.get(&stack));
            let place = place.or_else(|| by_correlation.get(&correlation(rows, i)?));
            if let Some(place) = place.filter(|_| !by_event.contains_key(&event)) {
                launched.insert(event, *place);
            }
        }
    });
    let mut of_rccl: HashSet<i64> = HashSet::new();
    read(rocpd::INFO_KERNEL_SYMBOL, &mut |rows| {
        let names = SYMBOL.map(|column| rows.column(column));
        for i in 0..rows.len {
            let is_rccl = |text: &str| KERNEL_NAMES.iter().any(|kernel| text.contains(kernel));
            if names.iter().any(|cells| cells.get(i).text_lossy().is_some_and(|text| is_rccl(&text))) {
                of_rccl.insert(rows.keys.get(i));
            }
        }
    });
    read(rocpd::KERNEL_DISPATCH, &mut |rows| {
        let [events, kernels, starts, ends] = DISPATCH.map(|column| rows.column(column));
        for i in 0..rows.len {
            let place = events.int(i).and_then(|event| launched.get(&event));
            let Some(found) = place.and_then(|p| found.get_mut(*p)) else { continue };
            if let (Some(start), Some(end)) = (starts.int(i), ends.int(i)) {
                let is_rccl = kernels.int(i).is_some_and(|kernel| of_rccl.contains(&kernel));
                found.kernel = found.kernel.add(start, end, is_rccl);
            }
        }
    });
}

/// Assigns each call its communicator and its number.
fn number(mut found: Vec<Found>, process: &mut ProcessCollectives) {
    found.sort_by_key(|f| f.call.enter);
    let mut sequences: Vec<CallSequence> = Vec::new();
    let mut by_handle: HashMap<u64, usize> = HashMap::new();
    let mut numbered: HashSet<(u64, u64)> = HashSet::new();
    for mut one in found {
        if one.call.function.is_by_args() {
            continue;
        }
        let group = one.group.take();
        if let (Some(group), Some(seq)) = (&group, one.seq) {
            match process.note_communicator(&format!("process group {group}")) {
                // Torch gives calls that it combines into one operation the same number.
                Some(comm) if numbered.insert((comm, seq)) => {
                    one.times_of_kernel();
                    process.calls.push(one.call.numbered(comm, seq));
                }
                Some(_) => {}
                None => process.alone += 1,
            }
            continue;
        }
        let next = sequences.len();
        let place = *by_handle.entry(one.handle).or_insert(next);
        if place == next {
            let name = match &group {
                Some(group) => format!("process group {group}, by order"),
                None => format!("regions, communicator {}", next + 1),
            };
            let Some(comm) = process.note_communicator(&name) else {
                process.alone += 1;
                by_handle.remove(&one.handle);
                continue;
            };
            sequences.push(CallSequence::new(comm, next as u32, group.is_some()));
        }
        let Some(sequence) = sequences.get_mut(place) else { continue };
        let CollectiveCall { function, size, root, .. } = one.call;
        let spec = RegionSpec { function, size, datatype: one.datatype, root };
        sequence.len += 1;
        sequence.is_torch &= one.is_torch;
        sequence.digest = digest(sequence.digest, &spec);
        if sequence.specs.len() < MAX_SPECS {
            sequence.specs.push(spec);
        }
        one.times_of_kernel();
        process.calls.push(one.call.numbered(sequence.comm, sequence.len));
    }
    process.sequences = sequences;
}

fn digest(before: u64, spec: &RegionSpec) -> u64 {
    let mut bytes = Vec::with_capacity(32);
    bytes.extend_from_slice(&before.to_le_bytes());
    bytes.push(spec.function.byte());
    bytes.extend_from_slice(&spec.size.unwrap_or(-1).to_le_bytes());
    bytes.extend_from_slice(&spec.datatype.to_le_bytes());
    bytes.extend_from_slice(&spec.root.map_or(-1, i64::from).to_le_bytes());
    XxHash3_64::oneshot(&bytes)
}
