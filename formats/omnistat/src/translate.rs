use crate::error::TranslateError;
use crate::series::{Head, Series};
use crate::table::{Cells, Line, Lines};
use crate::time;
use rpd_files::open_input;
use rpd_shard::file::Owner;
use rpd_shard::identity::node_of_file;
use rpd_shard::model::{TableId, Value, rocpd};
use rpd_shard::record::{Clock, Loss, LossCause, Node, Process};
use rpd_shard::{ShardWriter, WriteError};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::Path;

/// Every row begins with its node and its process, whose keys are 1.
const ONLY: Value<'static> = Value::Int(1);
const NULL: Value<'static> = Value::Null;
const ZERO: Value<'static> = Value::Int(0);
/// Category and track of the counters of rpd-collect.
const CATEGORY: &[u8] = b"SYSTEM_METRICS";
const TRACK: &[u8] = b"system";
/// What collected them.
const COMMAND: &str = "omnistat";
/// ns.
const SECOND: i64 = 1_000_000_000;
/// Rows that wait for their blocks.
const MAX_PENDING: usize = 1 << 18;

/// What became of a table.
#[derive(Clone, Debug, Default)]
pub struct Translation {
    /// Rows of the shard, per table, of all nodes together.
    pub rows: BTreeMap<TableId, u64>,
    /// What could not be kept, by what it was. It is in the shard's ledger too.
    pub lost: BTreeMap<&'static str, u64>,
    /// All times are in whole seconds: each sample may be up to a second from where it stands.
    pub whole_seconds: bool,
    /// One line for each thing that is not as it should be.
    pub warnings: Vec<String>,
}

/// Writes a table as a shard, a source for each node; returns the sink and what became of the table. One that ends
/// early yields the lines before.
pub fn translate<W: Write>(path: &Path, sink: W, owner: &Owner) -> Result<(W, Translation), TranslateError> {
    let mut lines = open(path)?;
    let head = Head::read(&mut lines, path)?;
    let shard = ShardWriter::of_owner(sink, owner)?;
    let mut writer =
        Writer { shard, told: Translation::default(), seen: vec![None; head.instances.len()], timed: (0, 0) };
    for process in processes(&head, &writer.seen) {
        writer.shard.process(&process)?;
    }
    let counters = writer.describe(&head)?;
    let mut first_bad = None;
    loop {
        let line = lines.next().map_err(|source| TranslateError::Io { path: path.to_owned(), source })?;
        let is_kept = match line {
            None => break,
            Some(Line::Cells(cells)) => writer.line(&head, &counters, cells)?,
            Some(Line::TooLong | Line::Cut) => false,
        };
        if !is_kept {
            writer.lose("lines", None, LossCause::BadRecord, 1);
            first_bad.get_or_insert(lines.number);
        }
    }
    for process in processes(&head, &writer.seen) {
        writer.shard.process(&process)?;
    }
    let Writer { shard, mut told, timed: (timed, exact), .. } = writer;
    told.whole_seconds = timed > 1 && exact == 0;
    if let Some(line) = first_bad {
        told.warnings.push(format!("line {line} has no time, is cut or too long"));
    }
    told.warnings.extend(told.lost.iter().map(|(what, count)| format!("{count} {what} are lost")));
    told.warnings.iter_mut().for_each(|line| *line = format!("{}: {line}", path.display()));
    Ok((shard.finish()?, told))
}

/// The nodes of a table as the processes that [`translate`] describes, but for their times.
pub fn peek(path: &Path) -> Result<Vec<Process>, TranslateError> {
    let head = Head::read(&mut open(path)?, path)?;
    Ok(processes(&head, &vec![None; head.instances.len()]))
}

fn open(path: &Path) -> Result<Lines<BufReader<File>>, TranslateError> {
    let file = open_input(path).map_err(|source| TranslateError::Io { path: path.to_owned(), source })?;
    Ok(Lines::new(BufReader::with_capacity(1 << 18, file)))
}

/// First and last time of an instance, ns.
type Seen = Option<(i64, i64)>;

fn processes(head: &Head, seen: &[Seen]) -> Vec<Process> {
    (1..)
        .zip(head.instances.iter().zip(seen))
        .map(|(source, (instance, seen))| {
            let (first_seen, last_seen) = (seen.map_or(0, |(first, _)| first), seen.map(|(_, last)| last));
            let node = Node { hostname: instance.clone(), ..Node::default() };
            let node = node_of_file(node, (0, first_seen));
            Process {
                source,
                first_seen,
                last_seen,
                command: COMMAND.to_owned(),
                ..Process::of_file(node, Clock::Realtime)
            }
        })
        .collect()
}

/// The shard, and the account.
struct Writer<W: Write> {
    shard: ShardWriter<W>,
    told: Translation,
    seen: Vec<Seen>,
    /// Lines with a time, and those of them whose time has a part of a second.
    timed: (u64, u64),
}

impl<W: Write> Writer<W> {
    fn push(&mut self, instance: u32, table: TableId, row: &[Value<'_>]) -> Result<i64, WriteError> {
        let key = self.shard.push(instance + 1, table, row)?;
        *self.told.rows.entry(table).or_default() += 1;
        if self.shard.pending_rows() > MAX_PENDING {
            self.shard.flush()?;
        }
        Ok(key)
    }

    fn lose(&mut self, what: &'static str, at: Option<(u32, TableId)>, cause: LossCause, rows: u64) {
        *self.told.lost.entry(what).or_default() += rows;
        let (source, table) = at.map_or((0, None), |(instance, table)| (instance + 1, Some(table)));
        self.shard.loss(Loss { source, table, cause, rows: Some(rows) });
    }

    /// Describes GPUs, counters and tracks; returns the keys of the counters.
    fn describe(&mut self, head: &Head) -> Result<Vec<i64>, WriteError> {
        let track = Value::Int(self.shard.string(TRACK)?);
        for instance in 0..head.instances.len() as u32 {
            self.push(instance, rocpd::TRACK, &[ONLY, ONLY, NULL, track])?;
        }
        let mut agents: BTreeMap<(u32, i64), i64> = BTreeMap::new();
        let mut counters = Vec::with_capacity(head.series.len());
        for series in &head.series {
            let agent = match series.gpu {
                Some(gpu) => match agents.get(&(series.instance, gpu)) {
                    Some(agent) => Value::Int(*agent),
                    None => {
                        let name = format!("GPU {gpu}");
                        // AMD counts CPUs first, and how many there are is not in the table.
                        let row = [
                            ONLY,
                            ONLY,
                            Value::from("GPU"),
                            NULL,
                            NULL,
                            Value::Int(gpu),
                            NULL,
                            name.as_str().into(),
                        ];
                        let agent = self.push(series.instance, rocpd::INFO_AGENT, &row)?;
                        agents.insert((series.instance, gpu), agent);
                        Value::Int(agent)
                    }
                },
                None => NULL,
            };
            counters.push(self.counter(series, agent)?);
        }
        Ok(counters)
    }

    fn counter(&mut self, series: &Series, agent: Value<'_>) -> Result<i64, WriteError> {
        let row = [
            ONLY,
            ONLY,
            agent,
            Value::from(if series.gpu.is_some() { "GPU" } else { "CPU" }),
            ZERO,
            series.gpu.map_or(ZERO, Value::Int),
            Value::from(series.name.as_str()),
            Value::from(series.metric.as_str()),
            Value::from(""),
            Value::from(""),
            Value::from(COMMAND),
            Value::from(series.unit()),
            Value::from("ABS"),
            Value::from(""),
            Value::from(""),
            ZERO,
            ZERO,
        ];
        self.push(series.instance, rocpd::INFO_PMC, &row)
    }

    /// Adds the values of a line; `false` where it has no time.
    fn line(&mut self, head: &Head, counters: &[i64], mut cells: Cells<'_>) -> Result<bool, WriteError> {
        let Some(at) = cells.next().and_then(|cell| time::parse(&cell)) else { return Ok(false) };
        self.timed.0 += 1;
        self.timed.1 += u64::from(at % SECOND != 0);
        // An event for each instance that has a value.
        let mut events: BTreeMap<u32, i64> = BTreeMap::new();
        let mut series = head.series.iter().zip(counters);
        for cell in cells {
            let text = cell.trim_ascii();
            let Some((series, counter)) = series.next() else {
                if !text.is_empty() {
                    self.lose("values without a column", None, LossCause::BadRecord, 1);
                }
                continue;
            };
            if text.is_empty() || text.eq_ignore_ascii_case(b"nan") {
                continue;
            }
            let value = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
            let Some(value) = value.filter(|value| value.is_finite()) else {
                let at = Some((series.instance, rocpd::PMC_EVENT));
                self.lose("values that are no numbers", at, LossCause::BadRecord, 1);
                continue;
            };
            let event = match events.get(&series.instance) {
                Some(event) => *event,
                None => {
                    let event = self.event(series.instance, at)?;
                    events.insert(series.instance, event);
                    event
                }
            };
            let row = [Value::Int(event), Value::Int(*counter), Value::Real(value)];
            self.push(series.instance, rocpd::PMC_EVENT, &row)?;
        }
        Ok(true)
    }

    fn event(&mut self, instance: u32, at: i64) -> Result<i64, WriteError> {
        let category = Value::Int(self.shard.string(CATEGORY)?);
        let event = self.push(instance, rocpd::EVENT, &[category, ZERO, ZERO, ZERO])?;
        self.push(instance, rocpd::SAMPLE, &[ONLY, Value::Int(at), Value::Int(event)])?;
        if let Some(seen) = self.seen.get_mut(instance as usize) {
            let (first, last) = seen.unwrap_or((at, at));
            *seen = Some((first.min(at), last.max(at)));
        }
        Ok(event)
    }
}
