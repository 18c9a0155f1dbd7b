use crate::series::{Head, Series};
use crate::table::{Cells, Line, Lines};
use crate::time;
use rpd_files::open_input;
use rpd_shard::file::Owner;
use rpd_shard::identity::node_of_file;
use rpd_shard::model::{
    AgentKey, AgentRow, EventKey, EventRow, LocalNs, PmcEventRow, PmcKey, PmcRow, SampleRow, StackId,
    TableId, TrackKey, TrackRow, WholeNumber, rocpd,
};
use rpd_shard::record::{Clock, Loss, LossCause, Node, Process};
use rpd_shard::{ShardWriter, WriteError};
use rpd_translator::{PendingLimit, TranslateError, Translation, Translator};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::Path;

/// The only track of each node.
const TRACK_KEY: i64 = 1;
const ZERO: WholeNumber = WholeNumber::Signed(0);
/// Category and track of the counters of rpd-collect.
const CATEGORY: &[u8] = b"SYSTEM_METRICS";
const TRACK: &[u8] = b"system";
/// What collected them.
const COMMAND: &str = "omnistat";
/// ns.
const SECOND: i64 = 1_000_000_000;
/// A table has little text, and its rows are of all nodes.
const PENDING_LIMIT: PendingLimit =
    PendingLimit { rows: PendingLimit::MANY_PROCESSES.rows, text_bytes: usize::MAX };
const WHOLE_SECONDS: &str = "its times are in whole seconds: each sample may be up to a second from where it stands, \
                             whatever the clocks' bars say";

/// Writes a table as a shard, a source for each node; returns the sink and what became of the table. One that ends
/// early yields the lines before.
pub fn translate<W: Write>(path: &Path, sink: W, owner: &Owner) -> Result<(W, Translation), TranslateError> {
    let mut lines = open(path)?;
    let head = Head::read(&mut lines, path)?;
    let translator = Translator::new(ShardWriter::of_owner(sink, owner)?, PENDING_LIMIT);
    let mut writer = Writer { translator, seen: vec![None; head.instances.len()], timed: (0, 0) };
    for process in processes(&head, &writer.seen) {
        writer.translator.process(&process)?;
    }
    let counters = writer.describe(&head)?;
    let mut first_bad = None;
    loop {
        let line = lines.next().map_err(|source| TranslateError::io(path, source))?;
        let is_kept = match line {
            None => break,
            Some(Line::Cells(cells)) => writer.line(&head, &counters, cells)?,
            Some(Line::TooLong | Line::Cut) => false,
        };
        if !is_kept {
            writer.lose("lines", None);
            first_bad.get_or_insert(lines.number);
        }
    }
    let Writer { mut translator, seen, timed: (timed, exact) } = writer;
    for process in processes(&head, &seen) {
        translator.process(&process)?;
    }
    if timed > 1 && exact == 0 {
        translator.note(WHOLE_SECONDS.to_owned());
    }
    if let Some(line) = first_bad {
        translator.warn(format!("line {line} has no time, is cut or too long"));
    }
    translator.warn_of_losses();
    Ok(translator.finish()?)
}

/// The nodes of a table as the processes that [`translate`] describes, but for their times.
pub fn peek(path: &Path) -> Result<Vec<Process>, TranslateError> {
    let head = Head::read(&mut open(path)?, path)?;
    Ok(processes(&head, &vec![None; head.instances.len()]))
}

fn open(path: &Path) -> Result<Lines<BufReader<File>>, TranslateError> {
    let file = open_input(path).map_err(|source| TranslateError::io(path, source))?;
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

/// A table on its way into the shard.
struct Writer<W: Write> {
    translator: Translator<W>,
    /// By instance.
    seen: Vec<Seen>,
    /// Lines with a time, and those of them whose time has a part of a second.
    timed: (u64, u64),
}

/// The number of an instance in the shard.
fn source(instance: u32) -> u32 {
    instance + 1
}

impl<W: Write> Writer<W> {
    fn lose(&mut self, what: &str, at: Option<(u32, TableId)>) {
        let (source, table) = at.map_or((0, None), |(instance, table)| (source(instance), Some(table)));
        self.translator.lose(what, Loss { source, table, cause: LossCause::BadRecord, rows: Some(1) });
    }

    /// Describes GPUs, counters and tracks; returns the keys of the counters.
    fn describe(&mut self, head: &Head) -> Result<Vec<PmcKey>, WriteError> {
        let name_id = Some(self.translator.string(TRACK)?);
        for instance in 0..head.instances.len() as u32 {
            self.translator.row(source(instance), &TrackRow { tid: None, name_id, extdata: None })?;
        }
        let mut agents: BTreeMap<(u32, i64), AgentKey> = BTreeMap::new();
        let mut counters = Vec::with_capacity(head.series.len());
        for series in &head.series {
            let agent = match series.gpu {
                Some(gpu) => match agents.get(&(series.instance, gpu)) {
                    Some(agent) => Some(*agent),
                    None => {
                        let agent = self.agent(series.instance, gpu)?;
                        agents.insert((series.instance, gpu), agent);
                        Some(agent)
                    }
                },
                None => None,
            };
            counters.push(self.counter(series, agent)?);
        }
        Ok(counters)
    }

    fn agent(&mut self, instance: u32, gpu: i64) -> Result<AgentKey, WriteError> {
        let name = format!("GPU {gpu}");
        let row = AgentRow {
            kind: Some(b"GPU"),
            // AMD counts CPUs first, and how many there are is not in the table.
            absolute_index: None,
            logical_index: None,
            type_index: Some(gpu.into()),
            uuid: None,
            name: Some(name.as_bytes()),
            model_name: None,
            vendor_name: None,
            product_name: None,
            user_name: None,
            extdata: None,
        };
        self.translator.row(source(instance), &row)
    }

    fn counter(&mut self, series: &Series, agent_id: Option<AgentKey>) -> Result<PmcKey, WriteError> {
        let row = PmcRow {
            agent_id,
            target_arch: Some(if series.gpu.is_some() { b"GPU" } else { b"CPU" }),
            event_code: Some(ZERO),
            instance_id: Some(series.gpu.map_or(ZERO, WholeNumber::Signed)),
            name: series.name.as_bytes(),
            symbol: series.metric.as_bytes(),
            description: Some(b""),
            long_description: Some(b""),
            component: Some(COMMAND.as_bytes()),
            units: Some(series.unit().as_bytes()),
            value_type: Some(b"ABS"),
            block: Some(b""),
            expression: Some(b""),
            is_constant: Some(ZERO),
            is_derived: Some(ZERO),
            extdata: None,
        };
        self.translator.row(source(series.instance), &row)
    }

    /// Adds the values of a line; `false` where it has no time.
    fn line(&mut self, head: &Head, counters: &[PmcKey], mut cells: Cells<'_>) -> Result<bool, WriteError> {
        let Some(at) = cells.next().and_then(|cell| time::parse(&cell)) else { return Ok(false) };
        self.timed.0 += 1;
        self.timed.1 += u64::from(at % SECOND != 0);
        // An event for each instance that has a value.
        let mut events: BTreeMap<u32, EventKey> = BTreeMap::new();
        let mut series = head.series.iter().zip(counters);
        for cell in cells {
            let text = cell.trim_ascii();
            let Some((series, counter)) = series.next() else {
                if !text.is_empty() {
                    self.lose("values without a column", None);
                }
                continue;
            };
            if text.is_empty() || text.eq_ignore_ascii_case(b"nan") {
                continue;
            }
            let value = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
            let Some(value) = value.filter(|value| value.is_finite()) else {
                let at = Some((series.instance, rocpd::PMC_EVENT));
                self.lose("values that are no numbers", at);
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
            let (event_id, value) = (Some(event), Some(value));
            let row = PmcEventRow { event_id, pmc_id: *counter, value, extdata: None };
            self.translator.row(source(series.instance), &row)?;
        }
        Ok(true)
    }

    fn event(&mut self, instance: u32, at: i64) -> Result<EventKey, WriteError> {
        let row = EventRow {
            category_id: Some(self.translator.string(CATEGORY)?),
            stack_id: Some(StackId::NONE),
            parent_stack_id: Some(StackId::NONE),
            correlation_id: Some(ZERO),
            call_stack: None,
            line_info: None,
            extdata: None,
        };
        let event = self.translator.row(source(instance), &row)?;
        let sample = SampleRow {
            track_id: TrackKey::new(TRACK_KEY),
            timestamp: LocalNs(at),
            event_id: Some(event),
            extdata: None,
        };
        self.translator.row(source(instance), &sample)?;
        if let Some(seen) = self.seen.get_mut(instance as usize) {
            let (first, last) = seen.unwrap_or((at, at));
            *seen = Some((first.min(at), last.max(at)));
        }
        Ok(event)
    }
}
