//! Writes the rows of a table.

use crate::series::{CounterSeries, TableHead};
use crate::table::LineCells;
use crate::time;
use rpd_shard::WriteError;
use rpd_shard::model::row_types::{
    AgentKey, AgentRow, EventKey, EventRow, PmcEventRow, PmcKey, PmcRow, SampleRow, StackId, TrackKey,
    TrackRow, WholeNumber,
};
use rpd_shard::model::{LocalNs, TableId, rocpd};
use rpd_shard::record::{Loss, LossCause};
use rpd_translator::Translator;
use std::collections::BTreeMap;

/// First and last time of an instance, in ns.
pub(crate) type SeenTimes = Option<(i64, i64)>;

/// Name of the tool that recorded the values.
pub(crate) const COMMAND: &str = "omnistat";
/// Key of the only track of each node.
const TRACK_KEY: i64 = 1;
/// Category of the counters of rpd-collect; the second constant is their track.
const CATEGORY: &[u8] = b"SYSTEM_METRICS";
const TRACK: &[u8] = b"system";
/// One second in ns.
const SECOND: i64 = 1_000_000_000;

/// A table while its rows are written.
pub(crate) struct TableRows<'s> {
    pub(crate) translator: Translator<'s>,
    /// First and last times by instance.
    seen: Vec<SeenTimes>,
    /// Number of lines with a time, and number of lines with a fraction of a second in their time.
    timed: (u64, u64),
}

/// Returns the source number of an instance in the shard.
fn source(instance: u32) -> u32 {
    instance + 1
}

impl<'s> TableRows<'s> {
    /// Creates the rows for a table with this number of instances.
    pub(crate) fn new(translator: Translator<'s>, instances: usize) -> TableRows<'s> {
        TableRows { translator, seen: vec![None; instances], timed: (0, 0) }
    }

    /// First and last times by instance.
    pub(crate) fn seen(&self) -> &[SeenTimes] {
        &self.seen
    }

    /// Returns whether all times are whole seconds; false if there is only one time.
    pub(crate) fn is_in_whole_seconds(&self) -> bool {
        let (timed, exact) = self.timed;
        timed > 1 && exact == 0
    }

    /// Counts one lost value or line.
    pub(crate) fn lose(&mut self, what: &str, at: Option<(u32, TableId)>) {
        let (source, table) = at.map_or((0, None), |(instance, table)| (source(instance), Some(table)));
        self.translator.lose(what, Loss { source, table, cause: LossCause::BadRecord, rows: Some(1) });
    }

    /// Writes GPUs, counters and tracks; returns the keys of the counters.
    pub(crate) fn describe(&mut self, head: &TableHead) -> Result<Vec<PmcKey>, WriteError> {
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
            // AMD counts CPUs first, and the table does not state how many there are: no other index is known.
            type_index: Some(gpu.into()),
            name: Some(name.as_bytes()),
            ..AgentRow::default()
        };
        self.translator.row(source(instance), &row)
    }

    fn counter(&mut self, series: &CounterSeries, agent_id: Option<AgentKey>) -> Result<PmcKey, WriteError> {
        let row = PmcRow {
            agent_id,
            target_arch: Some(if series.gpu.is_some() { b"GPU" } else { b"CPU" }),
            instance_id: Some(series.gpu.unwrap_or(0).into()),
            component: Some(COMMAND.as_bytes()),
            units: Some(series.unit().as_bytes()),
            ..PmcRow::absolute(series.name.as_bytes(), series.metric.as_bytes())
        };
        self.translator.row(source(series.instance), &row)
    }

    /// Writes the values of a line; returns `false` if it has no time.
    pub(crate) fn line(
        &mut self,
        head: &TableHead,
        counters: &[PmcKey],
        mut cells: LineCells<'_>,
    ) -> Result<bool, WriteError> {
        let Some(at) = cells.next().and_then(|cell| time::parse(&cell)) else { return Ok(false) };
        self.timed.0 += 1;
        self.timed.1 += u64::from(at % SECOND != 0);
        // One event per instance that has a value.
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
                self.lose("values that are not numbers", at);
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
            correlation_id: Some(WholeNumber::Signed(0)),
            ..EventRow::default()
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
