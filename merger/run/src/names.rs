//! Names of a unit: its threads, agents, queues, streams, counters, kernels and sample tracks.

use super::processes::{json_object, text};
use super::tables::RunTables;
use super::units::RowUnit;
use rpd_console::Failure;
use rpd_shard::model::{Cells, Local, Rows, TableId, Value, rocpd};
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::collections::HashMap;

/// Maximum number of rows of one of these tables in a unit.
const MAX_ROWS: usize = 1 << 22;
/// Maximum number of characters in the name of a queue or stream.
const MAX_LANE_CHARS: usize = 256;

/// Rows by their ids, which ascend.
#[derive(Debug)]
pub struct ById<T> {
    rows: Vec<(i64, T)>,
}

impl<T> Default for ById<T> {
    fn default() -> ById<T> {
        ById { rows: Vec::new() }
    }
}

impl<T> ById<T> {
    /// Returns the place of the row with this id.
    #[inline]
    pub fn place(&self, id: Option<i64>) -> Option<u32> {
        let id = id?;
        let first = self.rows.first()?.0;
        // Ids mostly have no gaps.
        let near = usize::try_from(id.checked_sub(first)?).ok()?;
        let place = match self.rows.get(near) {
            Some((found, _)) if *found == id => near,
            _ => self.rows.binary_search_by_key(&id, |(id, _)| *id).ok()?,
        };
        Some(place as u32)
    }

    /// Returns the row at a place.
    pub fn at(&self, place: Option<u32>) -> Option<&T> {
        self.rows.get(place? as usize).map(|(_, row)| row)
    }

    /// Returns all rows in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.rows.iter().map(|(_, row)| row)
    }
}

/// A thread.
#[derive(Debug)]
pub struct TracedThread {
    /// Thread id in the operating system.
    pub tid: i64,
    /// Name; empty if it has none.
    pub name: String,
}

/// A CPU or GPU.
#[derive(Debug)]
pub struct ComputeAgent {
    /// Whether it is a GPU.
    pub is_gpu: bool,
    /// Number among the agents of its type.
    pub number: Option<i64>,
    /// Model; empty if it is not known.
    pub model: String,
    /// PCI address, where it is known.
    pub pci: Option<String>,
}

impl ComputeAgent {
    /// Returns the label, for example `GPU 0 (0000:c1:00.0)`.
    pub fn label(&self) -> String {
        let pci = self.pci.as_ref().map_or(String::new(), |pci| format!(" ({pci})"));
        format!("{}{pci}", self.short_label())
    }

    /// Returns the label without the PCI address, such as `GPU 2`.
    pub fn short_label(&self) -> String {
        let sort = if self.is_gpu { "GPU" } else { "CPU" };
        let number = self.number.map_or(String::new(), |number| format!(" {number}"));
        format!("{sort}{number}")
    }
}

/// A queue or stream.
#[derive(Debug)]
pub struct QueueLane {
    /// Number in the runtime that created it.
    pub handle: i64,
    /// Name, unique within its process.
    pub name: String,
    /// Id of its process.
    process: Option<i64>,
}

/// A counter.
#[derive(Debug)]
pub struct CounterSource {
    /// Id of its process.
    pub process: Option<i64>,
    /// Id of its agent.
    pub agent: Option<i64>,
    /// Thread id in the operating system, of a counter of a thread.
    pub tid: Option<i64>,
    /// CPUs on which that thread may run, as `0,4-7`; empty if they are not known.
    pub cpus: String,
    /// Name.
    pub name: String,
    /// Unit of its values.
    pub unit: String,
    /// Description of the counted quantity.
    pub description: String,
}

/// A track of samples.
#[derive(Debug)]
pub struct SampleTrack {
    /// Id of its process.
    pub process: Option<i64>,
    /// Id of its thread.
    pub thread: Option<i64>,
    /// Id of the string with its name.
    pub name: Option<i64>,
}

/// Tables that name the objects of a unit.
#[derive(Debug, Default)]
pub struct UnitNames {
    /// Threads.
    pub threads: ById<TracedThread>,
    /// CPUs and GPUs.
    pub agents: ById<ComputeAgent>,
    /// Hardware queues.
    pub queues: ById<QueueLane>,
    /// Streams.
    pub streams: ById<QueueLane>,
    /// Counters.
    pub counters: ById<CounterSource>,
    /// Tracks of samples.
    pub tracks: ById<SampleTrack>,
}

impl UnitNames {
    /// Member of `extdata.rpd` with the name that an input recorded for a thread, queue or stream. A merge of several
    /// ranks puts the rank in front of the name itself.
    pub const RECORDED: &str = "recorded_name";

    /// Reads the names of a unit.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub fn read(tables: &RunTables, unit: &RowUnit) -> Result<UnitNames, Failure> {
        Ok(UnitNames {
            threads: read_rows(tables, unit, rocpd::INFO_THREAD, &["tid", "name", "extdata"], |row| {
                TracedThread {
                    tid: row.int("tid").unwrap_or(0),
                    name: row.recorded_name(&json_object(row.value("extdata"))),
                }
            })?,
            agents: read_rows(tables, unit, rocpd::INFO_AGENT, AGENT_COLUMNS, read_agent)?,
            queues: read_lanes(tables, unit, rocpd::INFO_QUEUE, "queue")?,
            streams: read_lanes(tables, unit, rocpd::INFO_STREAM, "stream")?,
            counters: read_rows(tables, unit, rocpd::INFO_PMC, COUNTER_COLUMNS, |row| {
                let extdata = json_object(row.value("extdata"));
                let stored = |member: &str| extdata.get("rpd").and_then(|stored| stored.get(member));
                CounterSource {
                    process: row.int("pid"),
                    agent: row.int("agent_id"),
                    tid: stored("tid").and_then(Json::as_i64),
                    cpus: stored("cpus").and_then(Json::as_str).unwrap_or_default().to_owned(),
                    name: row.text("name"),
                    unit: row.text("units"),
                    description: row.text("description"),
                }
            })?,
            tracks: read_rows(tables, unit, rocpd::TRACK, &["pid", "tid", "name_id"], |row| SampleTrack {
                process: row.int("pid"),
                thread: row.int("tid"),
                name: row.int("name_id"),
            })?,
        })
    }

    /// Returns the queues or the streams.
    pub fn lanes(&self, are_queues: bool) -> &ById<QueueLane> {
        if are_queues { &self.queues } else { &self.streams }
    }

    /// Passes the names of a unit's kernels to `number` and returns its results by symbol id. A name that is not
    /// UTF-8 is an owned string with replacement characters.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub fn read_kernels<T>(
        tables: &RunTables,
        unit: &RowUnit,
        mut number: impl FnMut(Cow<'_, str>) -> T,
    ) -> Result<ById<T>, Failure> {
        let wanted = &["display_name", "kernel_name"];
        read_rows(tables, unit, rocpd::INFO_KERNEL_SYMBOL, wanted, |row| {
            let names = ["display_name", "kernel_name"].map(|column| row.value(column));
            let name = names.into_iter().find_map(|value| match value {
                Value::Text(text) if !text.is_empty() => Some(text),
                _ => None,
            });
            number(String::from_utf8_lossy(name.unwrap_or_default()))
        })
    }
}

const AGENT_COLUMNS: &[&str] = &[
    "type",
    "type_index",
    "logical_index",
    "absolute_index",
    "name",
    "model_name",
    "product_name",
    "extdata",
];
const COUNTER_COLUMNS: &[&str] = &["pid", "agent_id", "name", "units", "description", "extdata"];

/// A row of the table that is being read.
struct Row<'a> {
    rows: &'a Rows<Local>,
    at: usize,
}

impl<'a> Row<'a> {
    fn value(&self, column: &str) -> Value<'a> {
        let cells: &'a Cells = self.rows.column(column);
        cells.get(self.at)
    }

    fn int(&self, column: &str) -> Option<i64> {
        self.rows.column(column).int(self.at)
    }

    fn text(&self, column: &str) -> String {
        text(self.value(column))
    }

    /// Returns the name as recorded, which a merge of several ranks stores in `extdata`.
    fn recorded_name(&self, extdata: &Map<String, Json>) -> String {
        match extdata.get("rpd").and_then(|stored| stored.get(UnitNames::RECORDED)) {
            Some(Json::String(name)) => name.clone(),
            Some(Json::Null) => String::new(),
            _ => self.text("name"),
        }
    }

    fn id(&self) -> i64 {
        self.rows.keys.get(self.at)
    }
}

fn read_rows<T>(
    tables: &RunTables,
    unit: &RowUnit,
    table: TableId,
    wanted: &'static [&'static str],
    mut of: impl FnMut(&Row<'_>) -> T,
) -> Result<ById<T>, Failure> {
    let mut found: Vec<(i64, T)> = Vec::new();
    tables.read_rows(table, unit.ids(table), wanted, &mut |rows, places| {
        for at in places {
            let row = Row { rows, at };
            if found.last().is_some_and(|(before, _)| *before >= row.id()) {
                return Err(tables.descending_ids(table));
            }
            if found.len() == MAX_ROWS {
                return Err(
                    tables.failure(format_args!("a process has more than {MAX_ROWS} rows of {table}"))
                );
            }
            found.push((row.id(), of(&row)));
        }
        Ok(())
    })?;
    Ok(ById { rows: found })
}

/// Reads queues or streams, depending on `noun`.
fn read_lanes(
    tables: &RunTables,
    unit: &RowUnit,
    table: TableId,
    noun: &str,
) -> Result<ById<QueueLane>, Failure> {
    let mut lanes = read_rows(tables, unit, table, &["pid", "name", "extdata"], |row| {
        // A merge that renumbered a lane stores the original number.
        let extdata = json_object(row.value("extdata"));
        let original = extdata.get("rpd").and_then(|stored| stored.get("id")).and_then(Json::as_i64);
        let handle = original.unwrap_or(row.id());
        QueueLane { handle, name: row.recorded_name(&extdata), process: row.int("pid") }
    })?;
    name_lanes(lanes.rows.iter_mut().map(|(_, lane)| lane), noun);
    Ok(lanes)
}

/// Names queues or streams as in the input (`Stream 3`), or by their place in the process (`stream 3`). If
/// several lanes would have the same name and look like one, their numbers are appended.
fn name_lanes<'a>(lanes: impl Iterator<Item = &'a mut QueueLane>, noun: &str) {
    let mut lanes: Vec<&mut QueueLane> = lanes.collect();
    let mut places: HashMap<Option<i64>, u64> = HashMap::new();
    let mut known: HashMap<(Option<i64>, String), u32> = HashMap::new();
    for lane in &mut lanes {
        let place = places.entry(lane.process).or_insert(0);
        let name: String = lane.name.chars().take(MAX_LANE_CHARS).collect();
        lane.name = match name.to_lowercase().contains(noun) {
            true => name,
            false if name.is_empty() => format!("{noun} {place}"),
            false => format!("{noun} {name}"),
        };
        *place += 1;
        *known.entry((lane.process, lane.name.clone())).or_insert(0) += 1;
    }
    for lane in lanes {
        if known.get(&(lane.process, lane.name.clone())).is_some_and(|count| *count > 1) {
            lane.name = format!("{} [{}]", lane.name, lane.handle);
        }
    }
}

fn read_agent(row: &Row<'_>) -> ComputeAgent {
    let number = ["type_index", "logical_index", "absolute_index"].into_iter().find_map(|name| row.int(name));
    let models = ["product_name", "model_name", "name"].into_iter().map(|name| row.text(name));
    // Translated files that name no model have the number of the GPU as its name.
    let is_model = |name: &String| !name.is_empty() && !name.starts_with("GPU ");
    ComputeAgent {
        is_gpu: row.text("type") == "GPU",
        number,
        model: models.into_iter().find(is_model).unwrap_or_default(),
        pci: pci_address(&json_object(row.value("extdata"))),
    }
}

/// Returns the PCI address, as our collector stores it or from rocprofv3's numbers.
fn pci_address(extdata: &Map<String, Json>) -> Option<String> {
    if let Some(Json::String(address)) = extdata.get("rpd").and_then(|stored| stored.get("pci")) {
        return Some(address.chars().take(32).collect());
    }
    let location =
        extdata.get("location_id")?.as_u64().filter(|location| *location <= 0xffff && *location > 0)?;
    let domain = extdata.get("domain").and_then(Json::as_u64).unwrap_or(0);
    // The bus is in the upper byte, followed by 5 bits for the device and 3 bits for the function.
    Some(format!("{domain:04x}:{:02x}:{:02x}.{:x}", location >> 8, location >> 3 & 0x1f, location & 7))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_with_and_without_gaps() {
        let by_id = ById { rows: vec![(5, 'a'), (6, 'b'), (9, 'c')] };
        let found = |id: i64| by_id.at(by_id.place(Some(id))).copied();
        assert_eq!([4, 5, 6, 7, 9, 10].map(found), [None, Some('a'), Some('b'), None, Some('c'), None]);
        assert_eq!(by_id.place(Some(i64::MIN)), None);
        assert_eq!(by_id.place(None), None);
    }

    #[test]
    fn streams_are_called_as_their_input_calls_them_and_by_names_of_their_own() {
        let of =
            |process, handle, name: &str| QueueLane { handle, name: name.to_owned(), process: Some(process) };
        let mut lanes = [
            of(1, 0, "Default Stream"),
            of(1, 1, "Stream 0"),
            of(1, 7, ""),
            of(1, 8, "(unknown)"),
            of(2, 4, ""),
            of(2, 5, "Stream 0"),
            of(2, 6, "mine"),
            of(2, 9, "mine"),
        ];
        name_lanes(lanes.iter_mut(), "stream");
        let names = lanes.each_ref().map(|lane| lane.name.as_str());
        let first = ["Default Stream", "Stream 0", "stream 2", "stream (unknown)"];
        let second = ["stream 0", "Stream 0", "stream mine [6]", "stream mine [9]"];
        assert_eq!((&names[..4], &names[4..]), (&first[..], &second[..]));
    }

    #[test]
    fn a_pci_address_is_that_of_the_collector_or_made_of_numbers() {
        let of = |text: &str| pci_address(&serde_json::from_str(text).unwrap_or_default());
        assert_eq!(of(r#"{"rpd":{"pci":"0000:c1:00.0"}}"#).as_deref(), Some("0000:c1:00.0"));
        assert_eq!(of(r#"{"domain":1,"location_id":49416}"#).as_deref(), Some("0001:c1:01.0"));
        assert_eq!(of(r#"{"domain":0}"#), None);
    }
}
