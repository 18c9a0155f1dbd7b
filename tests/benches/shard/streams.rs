//! Event streams as a training job makes them.

use rpd_shard::model::{TableId, Value, native};
use rpd_tests::synthetic::RandomSource;
use serde::{Deserialize, Serialize};

const THREADS: usize = 8;
/// Different names of ranges.
pub(crate) const NAMES: usize = 40;
/// MPI functions and communicators, after the names of ranges.
const FUNCTIONS: i64 = 6;

/// A plain event struct.
pub(crate) trait Event: Serialize + for<'a> Deserialize<'a> {
    /// Its native table.
    const TABLE: TableId;
    /// Its columns.
    type Row: AsRef<[Value<'static>]>;
    /// Its row.
    fn row(&self) -> Self::Row;
    /// Its fields as numbers, NULL as -1, for the raw format.
    fn fields(&self) -> impl Iterator<Item = i64>;
    /// A number to which all its fields contribute.
    fn sum(&self) -> u64 {
        self.fields().filter(|v| *v != -1).fold(0, |sum, v| sum.wrapping_add(v as u64))
    }
}

/// A roctx range.
#[derive(Serialize, Deserialize, Clone)]
pub(crate) struct Range {
    tid: i64,
    start: i64,
    end: i64,
    name: i64,
    stack: i64,
    parent: i64,
}

/// An MPI call.
#[derive(Serialize, Deserialize, Clone)]
pub(crate) struct MpiCall {
    tid: i64,
    start: i64,
    end: i64,
    name: i64,
    stack: i64,
    parent: i64,
    comm: i64,
    peer: Option<i64>,
    root: Option<i64>,
    tag: Option<i64>,
    bytes: Option<i64>,
    seq: Option<i64>,
}

impl Event for Range {
    const TABLE: TableId = native::RANGE;
    type Row = [Value<'static>; 6];

    fn row(&self) -> Self::Row {
        [self.tid, self.start, self.end, self.name, self.stack, self.parent].map(Value::Int)
    }

    fn fields(&self) -> impl Iterator<Item = i64> {
        [self.tid, self.start, self.end, self.name, self.stack, self.parent].into_iter()
    }
}

impl Event for MpiCall {
    const TABLE: TableId = native::MPI_CALL;
    type Row = [Value<'static>; 12];

    fn row(&self) -> Self::Row {
        let optional = |v: Option<i64>| v.map_or(Value::Null, Value::Int);
        [
            Value::Int(self.tid),
            Value::Int(self.start),
            Value::Int(self.end),
            Value::Int(self.name),
            Value::Int(self.stack),
            Value::Int(self.parent),
            Value::Int(self.comm),
            optional(self.peer),
            optional(self.root),
            optional(self.tag),
            optional(self.bytes),
            optional(self.seq),
        ]
    }

    fn fields(&self) -> impl Iterator<Item = i64> {
        let always = [self.tid, self.start, self.end, self.name, self.stack, self.parent, self.comm];
        let sometimes = [self.peer, self.root, self.tag, self.bytes, self.seq].map(|v| v.unwrap_or(-1));
        always.into_iter().chain(sometimes)
    }
}

/// One step of a thread's program: a range begins or ends. Programs repeat, as training loops do.
#[derive(Clone, Copy)]
enum Step {
    Begin { name: i64, typical: i64 },
    End { typical: i64 },
}

struct Thread {
    program: Vec<Step>,
    at: usize,
    now: i64,
    open: Vec<Open>,
}

struct Open {
    start: i64,
    name: i64,
    stack: i64,
    parent: i64,
}

/// A nest of ranges of random shape, about `length` of them.
fn program(random: &mut RandomSource, length: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut begun, mut depth) = (0, 0i64);
    while begun < length || depth > 0 {
        if begun < length && (depth < 2 || (depth < 6 && random.chance(45))) {
            let name = 1 + (depth * 7 + random.between(0, 8)) % NAMES as i64;
            steps.push(Step::Begin { name, typical: random.between(500, 5_000) });
            begun += 1;
            depth += 1;
        } else {
            steps.push(Step::End { typical: random.between(500, 9_000) });
            depth -= 1;
        }
    }
    steps
}

/// Nested ranges of several threads, in the order in which they end.
pub(crate) fn ranges(count: usize) -> Vec<Range> {
    let mut random = RandomSource::new(&[7]);
    let mut out = Vec::with_capacity(count);
    let mut threads: Vec<_> = (0..THREADS)
        .map(|_| Thread {
            program: program(&mut random, 60),
            at: 0,
            now: 3_600_000_000_000,
            open: Vec::new(),
        })
        .collect();
    let mut stack = 0;
    while out.len() < count {
        // The thread with the earliest time goes on: threads run side by side.
        let tid = (0..THREADS).min_by_key(|thread| threads[*thread].now).unwrap_or(0);
        let thread = &mut threads[tid];
        let step = thread.program[thread.at];
        thread.at = (thread.at + 1) % thread.program.len();
        match step {
            Step::Begin { name, typical } => {
                thread.now += random.duration(typical);
                stack += 1;
                let parent = thread.open.last().map_or(0, |range| range.stack);
                // Now and then the program takes another way.
                let name = if random.chance(5) { random.between(1, NAMES as i64 + 1) } else { name };
                thread.open.push(Open { start: thread.now, name, stack, parent });
            }
            Step::End { typical } => {
                thread.now += random.duration(typical);
                if let Some(Open { start, name, stack, parent }) = thread.open.pop() {
                    out.push(Range { tid: tid as i64 + 1, start, end: thread.now, name, stack, parent });
                }
            }
        }
    }
    out
}

/// What a call of the loop is like every time.
struct Slot {
    thread: usize,
    kind: i64,
    peer: i64,
    tag: i64,
    bytes: i64,
    typical: i64,
}

/// Collectives and messages of the main thread and a communication thread: a loop of 24 calls.
pub(crate) fn mpi_calls(count: usize) -> Vec<MpiCall> {
    let mut random = RandomSource::new(&[8]);
    let slot = |_| Slot {
        thread: usize::from(random.chance(60)),
        kind: random.between(0, FUNCTIONS),
        peer: random.between(0, 64),
        tag: random.between(0, 8),
        bytes: random.between(1, 1 << 20) * 64,
        typical: random.between(10_000, 100_000),
    };
    let slots: Vec<Slot> = (0..24).map(slot).collect();
    let mut now = [3_600_000_000_000i64; 2];
    let mut seq = [0i64; 2];
    let mut stack = 0;
    let mut call = |i: usize| {
        // Now and then the program takes another way.
        let slot = &slots[if random.chance(5) { random.index(slots.len()) } else { i % slots.len() }];
        let thread = slot.thread;
        now[thread] += random.duration(20_000);
        let start = now[thread];
        now[thread] += random.duration(slot.typical);
        // The range around it, and a few others, have ids too.
        stack += 1 + random.between(0, 3);
        let collective = slot.kind < 4;
        MpiCall {
            tid: thread as i64 + 1,
            start,
            end: now[thread],
            name: NAMES as i64 + 1 + slot.kind,
            stack,
            parent: stack - 1,
            comm: NAMES as i64 + 1 + FUNCTIONS + thread as i64,
            peer: (!collective).then_some(slot.peer),
            root: (slot.kind == 1).then_some(0),
            tag: (!collective).then_some(slot.tag),
            bytes: (slot.kind != 3).then_some(slot.bytes),
            seq: collective.then(|| {
                seq[thread] += 1;
                seq[thread]
            }),
        }
    };
    (0..count).map(&mut call).collect()
}
