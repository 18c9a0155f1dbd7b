//! A job with spans like those of a training run: calls within calls, of very different lengths.

use rpd_perfetto::{
    ChildOrder, Edge, Overlaps, Sequence, Span, Thread, Timeline, Timestamp, Track, TrackId, TrackKind,
    Window,
};

const PROCESSES: usize = 8;
/// Threads of each process.
const THREADS: usize = 8;
const NAMES: u32 = 300;
const CATEGORIES: u32 = 6;
/// Ten minutes into the job: such times have six bytes.
const BEGIN: u64 = 600_000_000_000;

/// A call.
pub(crate) struct Call {
    pub(crate) span: Span,
    pub(crate) name: u32,
    pub(crate) category: u32,
    pub(crate) size: i64,
    pub(crate) correlation: i64,
}

/// The calls of a thread, each before those that it encloses.
pub(crate) struct Calls {
    pub(crate) track: TrackId,
    pub(crate) calls: Vec<Call>,
    /// Beginnings, with the number of their call, and ends, in order.
    pub(crate) edges: Vec<(Timestamp, Option<u32>)>,
}

/// Threads of eight processes.
pub(crate) struct Job {
    pub(crate) processes: Vec<Vec<Calls>>,
    names: Vec<String>,
}

impl Job {
    /// A job with about so many calls, the same whenever it is made.
    pub(crate) fn new(slices: usize) -> Job {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let each = (slices / (PROCESSES * THREADS)).max(1);
        let mut track = PROCESSES as u64;
        let mut processes = Vec::new();
        for _ in 0..PROCESSES {
            let threads = (0..THREADS).map(|_| {
                track += 1;
                Calls::new(TrackId(track), each, &mut random)
            });
            processes.push(threads.collect());
        }
        let names =
            (0..NAMES).map(|n| format!("void at::native::kernel_{n}<float, {n}>(float*, int)")).collect();
        Job { processes, names }
    }

    pub(crate) fn slices(&self) -> usize {
        self.processes.iter().flatten().map(|thread| thread.calls.len()).sum()
    }

    pub(crate) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", |name| name)
    }

    pub(crate) fn category(&self, number: u32) -> &'static str {
        ["HIP_RUNTIME_API", "KERNEL_DISPATCH", "MEMORY_COPY", "MARKER", "RCCL", "MPI"][number as usize]
    }
}

impl Calls {
    fn new(track: TrackId, count: usize, random: &mut Random) -> Calls {
        let mut thread = Calls { track, calls: Vec::with_capacity(count), edges: Vec::new() };
        let mut now = BEGIN + random.below(1_000_000);
        while thread.calls.len() < count {
            now = thread.call(now, 0, count, random) + random.length();
        }
        let mut edges = Vec::with_capacity(2 * count);
        thread.in_order(|at, call| edges.push((at, call)));
        thread.edges = edges;
        thread
    }

    /// A call with those within it; when it ends.
    fn call(&mut self, start: u64, depth: u32, count: usize, random: &mut Random) -> u64 {
        let number = self.calls.len();
        // Some names come often, most seldom.
        let names = 1 + random.below(NAMES.into());
        self.calls.push(Call {
            span: span(start, start),
            name: random.below(names) as u32,
            category: random.below(CATEGORIES.into()) as u32,
            size: random.length() as i64,
            correlation: number as i64,
        });
        let mut now = start + random.length();
        while depth < 6 && self.calls.len() < count && random.below(3) == 0 {
            now = self.call(now, depth + 1, count, random) + random.below(2_000);
        }
        self.calls[number].span = span(start, now);
        now
    }

    /// Gives the beginnings and ends in order.
    pub(crate) fn in_order(&self, mut edge: impl FnMut(Timestamp, Option<u32>)) {
        let mut timeline = Timeline::new(Overlaps::Nest, Window::ALL);
        let mut take = |found: Edge<'_, u32>| match found {
            Edge::Begin { at, item, .. } => edge(at, Some(*item)),
            Edge::End { at, .. } => edge(at, None),
        };
        for (number, call) in (0..).zip(&self.calls) {
            timeline.push(call.span, number, &mut take).expect("calls are sorted");
        }
        assert_eq!(timeline.lanes(), 1, "calls are nested");
        timeline.close(take);
    }
}

/// Writes the tracks of a process; its number counts from 1.
pub(crate) fn describe(number: u32, threads: &[Calls], sequence: &mut Sequence) {
    let parent = TrackId(number.into());
    let pid = number as i32;
    let name = format!("rank {} (node{:03})", number - 1, number / 4);
    let kind = TrackKind::Process { pid };
    sequence.track(&Track { kind, children: ChildOrder::Rank, ..Track::new(parent, &name) });
    for thread in threads {
        let tid = 1000 + thread.track.0 as i32;
        let kind = TrackKind::Thread(Thread { pid, tid });
        sequence.track(&Track { kind, parent: Some(parent), ..Track::new(thread.track, "thread") });
    }
}

fn span(start: u64, end: u64) -> Span {
    let time = |ns| Timestamp::new(ns as i64).expect("a run does not last for 292 years");
    Span::new(time(start), time(end)).expect("calls do not end before they begin")
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// A length of 256 ns to 0.5 ms: each power of two is as likely.
    fn length(&mut self) -> u64 {
        let magnitude = 256u64 << self.below(11);
        magnitude + self.below(magnitude)
    }
}
