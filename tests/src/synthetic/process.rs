use super::cell::{JsonCell, ModelCell, Row};
use super::clock::RUN_START;
use super::communication;
use super::gpu;
use super::native::{NativeCall, NativeRows};
use super::random::RandomSource;
use super::run::{PlannedProcess, Run, SyntheticRun};
use rpd_shard::model::{TableId, rocpd};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Events of one training step.
const STEP_EVENTS: usize = 50;
/// Length of a step, ns. Far more than its events take, so that collectives stand at its end.
const STEP: i64 = 20_000_000;
/// Typical length of one call.
pub(super) const CALL: i64 = 12_000;

/// Everything that one process did, in the plainest form.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProcessRows {
    /// Rows of RocPD tables. Node and process (one row each) and strings are implied.
    pub tables: BTreeMap<TableId, Vec<Row>>,
    /// What the collector records by itself, in the order of completion.
    pub native: Vec<NativeRows>,
    /// Planted pairs: position of a launching region, position of the dispatch that it launched.
    pub launches: Vec<(usize, usize)>,
    /// The sparse ids that rocprofv3 would give to regions and samples, which share one id space.
    pub api_ids: BTreeMap<TableId, Vec<i64>>,
}

pub(super) fn length(config: &SyntheticRun) -> i64 {
    config.events_per_rank.div_ceil(STEP_EVENTS).max(1) as i64 * STEP
}

impl ProcessRows {
    pub(super) fn generate(run: &Run, process: &PlannedProcess) -> ProcessRows {
        let mut author = Author::new(run, process);
        gpu::describe(&mut author);
        let mut left = run.config.events_per_rank;
        let mut step = 0;
        while left > 0 {
            let events = left.min(STEP_EVENTS);
            author.step(step, events);
            left -= events;
            step += 1;
        }
        author.rows
    }

    /// The rows of a table.
    pub fn of(&self, table: TableId) -> &[Row] {
        self.tables.get(&table).map_or(&[], |rows| rows)
    }

    /// Adds a row; returns its position.
    pub fn add(&mut self, table: TableId, row: Row) -> usize {
        let rows = self.tables.entry(table).or_default();
        rows.push(row);
        rows.len() - 1
    }
}

/// Makes up the rows of one process.
pub(super) struct Author<'a> {
    pub(super) run: &'a Run,
    pub(super) process: &'a PlannedProcess,
    pub(super) random: RandomSource,
    pub(super) rows: ProcessRows,
    pub(super) kernels: Vec<Arc<str>>,
    threads: Vec<Thread>,
    stacks: i64,
    api_id: i64,
    pub(super) collectives: i64,
    pub(super) messages: i64,
}

/// Where a thread is.
struct Thread {
    now: i64,
    open: Vec<OpenRange>,
}

struct OpenRange {
    name: Arc<str>,
    start: i64,
    stack: i64,
    parent: i64,
}

impl<'a> Author<'a> {
    fn new(run: &'a Run, process: &'a PlannedProcess) -> Author<'a> {
        let seed = [run.config.seed, 4, u64::from(process.rank), u64::from(process.source)];
        let thread = |_| Thread { now: RUN_START, open: Vec::new() };
        Author {
            run,
            process,
            random: RandomSource::new(&seed),
            rows: ProcessRows::default(),
            kernels: run.names.kernels(process.rank),
            threads: (0..run.config.threads.max(1)).map(thread).collect(),
            stacks: 0,
            api_id: 0,
            collectives: 0,
            messages: 0,
        }
    }

    fn step(&mut self, step: i64, events: usize) {
        let from = RUN_START + step * STEP;
        for thread in 0..self.threads.len() {
            self.threads[thread].now = from + self.random.between(0, 100_000);
        }
        for slot in 0..events {
            let thread = self.random.index(self.threads.len());
            if self.random.chance(35) {
                self.close(thread);
            }
            match slot {
                0..=3 if !self.process.worker() => communication::slot(self, step, slot),
                slot if slot % 16 == 5 => self.mark(thread, step),
                slot if slot % 4 == 0 => self.open(thread),
                _ => gpu::call(self, thread),
            }
        }
        for thread in 0..self.threads.len() {
            while !self.threads[thread].open.is_empty() {
                self.close(thread);
            }
        }
        if !self.process.worker() && self.run.config.collectives {
            communication::collective(self, step, from + STEP);
        }
    }

    fn open(&mut self, thread: usize) {
        let range = OpenRange {
            name: self.run.names.range(&mut self.random),
            start: self.pass(thread, CALL / 8),
            stack: self.new_stack(),
            parent: self.parent(thread),
        };
        self.threads[thread].open.push(range);
    }

    fn close(&mut self, thread: usize) {
        let Some(OpenRange { name, start, stack, parent }) = self.threads[thread].open.pop() else { return };
        let end = self.pass(thread, CALL / 8);
        self.rows.native.push(NativeRows {
            thread,
            call: NativeCall::Range(name),
            start,
            end,
            stack,
            parent,
        });
    }

    fn mark(&mut self, thread: usize, step: i64) {
        let at = self.pass(thread, CALL / 8);
        let (stack, parent) = (self.new_stack(), self.parent(thread));
        let call = NativeCall::Mark(format!("epoch {}", step / 4).into());
        self.rows.native.push(NativeRows { thread, call, start: at, end: at, stack, parent });
    }

    /// Lets a thread go on for about `typical` ns; returns the time then.
    pub(super) fn pass(&mut self, thread: usize, typical: i64) -> i64 {
        let by = self.random.duration(typical);
        self.threads[thread].now += by;
        self.threads[thread].now
    }

    /// Beginning and end of a call of a thread.
    pub(super) fn span(&mut self, thread: usize) -> (i64, i64) {
        let start = self.pass(thread, CALL / 8);
        (start, self.pass(thread, CALL))
    }

    /// The next stack id.
    pub(super) fn new_stack(&mut self) -> i64 {
        self.stacks += 1;
        self.stacks
    }

    /// Stack id of the range in which a thread is, else 0.
    pub(super) fn parent(&self, thread: usize) -> i64 {
        self.threads[thread].open.last().map_or(0, |range| range.stack)
    }

    /// Number of threads.
    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Adds an event; returns its position.
    pub(super) fn event(
        &mut self,
        category: &str,
        stack: ModelCell,
        parent: ModelCell,
        extdata: ModelCell,
    ) -> usize {
        let line_info = if self.random.chance(4) {
            let object = self.random.index(self.rows.of(rocpd::INFO_CODE_OBJECT).len());
            let pc = JsonCell::Object(vec![
                ("code_object_id", JsonCell::Row(rocpd::INFO_CODE_OBJECT, object)),
                ("code_object_offset", JsonCell::Int(self.random.between(0, 65_536))),
            ]);
            JsonCell::cell([("pc", pc), ("line", JsonCell::Int(self.random.between(1, 900)))])
        } else {
            JsonCell::empty()
        };
        let correlation = match self.random.between(0, 10) {
            0 => ModelCell::Null,
            1 => ModelCell::Int(self.random.bits() as i64 >> 1),
            _ => ModelCell::Int(0),
        };
        let row = vec![
            ModelCell::Name(category.into()),
            stack,
            parent,
            correlation,
            JsonCell::empty(),
            line_info,
            extdata,
        ];
        self.rows.add(rocpd::EVENT, row)
    }

    /// Adds a region or a sample, which get an id of the space that they share.
    pub(super) fn api(&mut self, table: TableId, row: Row) -> usize {
        self.api_id += 1 + self.random.between(0, 3);
        self.rows.api_ids.entry(table).or_default().push(self.api_id);
        self.rows.add(table, row)
    }
}

/// The node and the process of a row, with which most tables begin.
pub(super) fn owner() -> [ModelCell; 2] {
    [ModelCell::Row(rocpd::INFO_NODE, 0), ModelCell::Row(rocpd::INFO_PROCESS, 0)]
}
