//! The streams of the GPUs of a process as timelines: kernels and copies are work, kernels of collectives are calls.

use crate::functions::GpuWait;
use crate::gpu_collectives::{GpuCommunicators, KernelEntries, LaunchedCollectives};
use crate::gpu_rows::{GpuLane, GpuRow};
use crate::labels::{LabelKey, LabelNumbers};
use crate::operations::ProcessOperations;
use crate::thread_calls::ThreadTimeline;
use crate::work_amounts::WorkAmounts;
use rpd_graph::{Call, LocalDependency, WorkSegment};
use std::collections::{HashMap, HashSet};

/// Longest time from the end of the awaited work to the start of the work that waited, ns.
const MAX_START_DELAY_NS: i64 = 20_000;
/// A stream that is idle for a shorter time waits for no other stream, ns.
const MIN_STREAM_WAIT_NS: i64 = 5_000;
/// Maximum number of rows that are searched for the one for which a call waited.
const MAX_SEARCHED: usize = 64;
/// Maximum number of streams of a process; further ones count as the last.
const MAX_STREAMS: usize = 256;

/// A stream as it is built.
///
/// ```text
/// thread   [launch A][launch B]                     [ synchronise ]
/// stream   |-idle-|  A  |idle|      B      |---------idle---------|
/// calls    [      ]     [    ]             [ last call            ]
/// ```
///
/// Each idle time is a call that waits for the launch of the work after it. A thread that waits for work waits for the call
/// after it.
#[derive(Debug)]
struct StreamBuilder {
    timeline: ThreadTimeline,
    /// End of the work so far, ns in job time.
    now: i64,
    works: Vec<StreamWork>,
    /// Amount of each segment of work.
    amounts: Vec<u32>,
}

/// Work of a stream.
#[derive(Clone, Copy, Debug)]
struct StreamWork {
    /// Time at which the call that launched it began, ns in job time; `None` if that is not recorded.
    launched: Option<i64>,
    end: i64,
    /// Index of the call after it.
    next_call: u32,
}

/// The parts of a process that its streams refer to.
pub(crate) struct StreamContext<'a> {
    pub(crate) labels: &'a mut LabelNumbers,
    pub(crate) operations: &'a ProcessOperations,
    pub(crate) launched: LaunchedCollectives,
    pub(crate) communicators: &'a mut GpuCommunicators,
    /// First time and end of the part that is read, ns in job time.
    pub(crate) window: Option<(i64, i64)>,
}

/// Adds the streams of a process to its threads. `rows` are sorted by start.
pub(crate) fn add_streams(rows: &[GpuRow], timelines: &mut Vec<ThreadTimeline>, context: StreamContext<'_>) {
    let threads = timelines.len() as u32;
    let mut places: HashMap<GpuLane, usize> = HashMap::new();
    // The work of one call, such as a graph, counts as that of one stream.
    let mut of_launch: HashMap<i64, usize> = HashMap::new();
    let mut streams: Vec<StreamBuilder> = Vec::new();
    let mut entries = KernelEntries::new(context.launched, context.communicators);
    let idle = context.labels.number(LabelKey::StreamIdle);
    for row in rows {
        let launch = context.operations.launching.get(row.stack).filter(|_| row.stack != 0);
        let launched =
            launch.and_then(|(thread, call)| timelines.get(thread as usize)?.calls.get(call as usize));
        let enter = |entries: &mut KernelEntries<'_>| {
            let collective = row.collective.as_ref()?;
            entries.enter(collective, launched.map(|call| call.enter_ns))
        };
        if context.window.is_some_and(|(from, to)| row.start < from || row.end > to) {
            // Numbers by order are those in the whole run.
            let _ = enter(&mut entries);
            continue;
        }
        let own = *places.entry(row.lane).or_insert(usize::MAX);
        let joined = if row.stack == 0 { own } else { *of_launch.entry(row.stack).or_insert(own) };
        let place = match joined {
            usize::MAX => {
                if streams.len() < MAX_STREAMS {
                    let begin = launched.map_or(row.start, |call| call.enter_ns.min(row.start));
                    streams.push(StreamBuilder::new(streams.len(), begin));
                }
                let place = streams.len() - 1;
                places.insert(row.lane, place);
                of_launch.insert(row.stack, place);
                place
            }
            place => place,
        };
        let start = row.start.max(streams[place].now);
        if row.end <= start {
            continue;
        }
        let entry = enter(&mut entries);
        let other = streams[place].awaited_stream(place, start, launched.map(Call::exit_ns), &streams);
        let stream = &mut streams[place];
        stream.idle(start, idle);
        let waiting = stream.timeline.calls.len() as u32 - 1;
        if let Some((thread, call)) = launch {
            stream.wait(waiting, thread, call);
        }
        if let Some((other, call)) = other {
            stream.wait(waiting, threads + other as u32, call);
        }
        let label = context.labels.number(LabelKey::GpuWork(row.name));
        match entry {
            Some(entry) => {
                stream.call(start, row.end, label);
                let call = stream.timeline.calls.len() as u32 - 1;
                stream.timeline.operations.entries.push(rpd_graph::CollectiveEntry { call, ..entry });
                stream.timeline.communicates = true;
            }
            None => stream.work(row.end, label, row.amount),
        }
        let next_call = stream.timeline.calls.len() as u32;
        let launched = launched.map(|call| call.enter_ns);
        stream.works.push(StreamWork { launched, end: row.end, next_call });
    }
    let mut known: HashSet<(u32, usize, u32)> = HashSet::new();
    for (thread, call, wait) in &context.operations.gpu_waits {
        let Some(timeline) = timelines.get_mut(*thread as usize) else { continue };
        let Some(waiting) = timeline.calls.get(*call as usize) else { continue };
        let mut awaited = awaited_work(&streams, waiting, *wait);
        // The thread has waited for this work before; a second wait for it adds nothing.
        awaited.retain(|(stream, awaited_call)| known.insert((*thread, *stream, *awaited_call)));
        timeline.local_dependencies.extend(awaited.into_iter().map(|(stream, awaited_call)| {
            LocalDependency { call: *call, awaited_timeline: threads + stream as u32, awaited_call }
        }));
    }
    timelines.iter_mut().for_each(|timeline| timeline.local_dependencies.sort_by_key(|found| found.call));
    timelines.extend(streams.into_iter().map(|stream| stream.finish(idle)));
}

/// Returns the streams and their calls for which a call of a thread waits: of all streams, or of the one that ended
/// last, the last work that was launched before.
fn awaited_work(streams: &[StreamBuilder], waiting: &Call, wait: GpuWait) -> Vec<(usize, u32)> {
    let (enter, exit) = (waiting.enter_ns, waiting.exit_ns());
    let last_of = |(place, stream): (usize, &StreamBuilder)| {
        let ended = stream.works.partition_point(|work| work.end <= exit);
        let mut searched = stream.works[..ended].iter().rev().take(MAX_SEARCHED);
        // A call that copies launches the work for which it waits.
        let last = searched.find(|work| work.launched.is_some_and(|launched| launched <= enter))?;
        Some((last.end, place, last.next_call))
    };
    let mut found: Vec<(i64, usize, u32)> = streams.iter().enumerate().filter_map(last_of).collect();
    if wait == GpuWait::OneStream {
        // The stream is not recorded: the one whose work ended last explains the wait.
        found.sort_unstable();
        found = found.pop().into_iter().collect();
    }
    found.into_iter().map(|(_, place, call)| (place, call)).collect()
}

impl StreamBuilder {
    fn new(number: usize, start: i64) -> StreamBuilder {
        let timeline = ThreadTimeline {
            // No thread has this key.
            thread: i64::MIN.saturating_add(1).saturating_add_unsigned(number as u64),
            is_stream: true,
            start,
            first_work: vec![0],
            ..ThreadTimeline::default()
        };
        StreamBuilder { timeline, now: start, works: Vec::new(), amounts: Vec::new() }
    }

    /// Returns another stream, and its call after the work that ended just before this work began, if this is the only
    /// explanation for the idle time before it.
    fn awaited_stream(
        &self,
        own: usize,
        start: i64,
        launched: Option<i64>,
        streams: &[StreamBuilder],
    ) -> Option<(usize, u32)> {
        let ready = self.now.max(launched?);
        if start.saturating_sub(ready) < MIN_STREAM_WAIT_NS {
            return None;
        }
        let ended = |stream: &StreamBuilder| {
            (ready..=start).contains(&stream.now) && start - stream.now <= MAX_START_DELAY_NS
        };
        let others = streams.iter().enumerate().filter(|(place, stream)| *place != own && ended(stream));
        let (place, last) = others.max_by_key(|(place, stream)| (stream.now, *place))?;
        Some((place, last.works.last()?.next_call))
    }

    /// Ends the idle time before work.
    fn idle(&mut self, until: i64, label: u32) {
        self.call(self.now, until, label);
    }

    fn call(&mut self, enter: i64, exit: i64, label: u32) {
        self.timeline.calls.push(Call { enter_ns: enter, duration_ns: exit.abs_diff(enter), label });
        self.timeline.first_work.push(self.timeline.work.len() as u32);
        self.now = exit;
    }

    fn work(&mut self, until: i64, label: u32, amount: u32) {
        self.timeline.work.push(WorkSegment { label, ns: until.abs_diff(self.now) });
        self.amounts.push(amount);
        self.now = until;
    }

    fn wait(&mut self, call: u32, awaited_timeline: u32, awaited_call: u32) {
        self.timeline.local_dependencies.push(LocalDependency { call, awaited_timeline, awaited_call });
    }

    /// Adds the last call, which threads enter that wait for the last work.
    fn finish(mut self, label: u32) -> ThreadTimeline {
        self.idle(self.now, label);
        self.timeline.first_work.push(self.timeline.work.len() as u32);
        self.timeline.end = self.now;
        self.timeline.amounts = WorkAmounts::of_segments(self.amounts);
        self.timeline
    }
}
