//! Expands native rows into rows of RocPD. A range or call becomes an event and a region. A mark, a completed request
//! or a new communicator becomes an event and a sample. Each value becomes an arg of the event.

use crate::input::{ExpandedKeys, NO_THREAD, SourceTracks};
use rpd_shard::file::ShardStrings;
use rpd_shard::model::{
    Cells, Keys, Local, Nulls, Rows, RowsBuilder, Schema, Table, TableId, TextCells, Value, native, rocpd,
};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Strings that expanded rows need. Their local ids are negative, so they collide with no id of a shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum BuiltinString {
    /// Category of ranges, as rocprofv3 spells it.
    RangeCategory,
    /// Category of marks.
    MarkCategory,
    /// Category of MPI calls.
    MpiCategory,
    /// Category of RCCL host calls.
    RcclCategory,
    /// Name of the track that holds a thread's marks.
    MarkTrack,
    /// Name of the track that holds the requests that a thread saw completed.
    RequestTrack,
    /// Category of communicators, both of MPI and of RCCL.
    CommunicatorCategory,
    /// Name of the track that holds the communicators that a thread created or named.
    CommunicatorTrack,
    /// Placeholder for a lost string.
    Lost,
}

impl BuiltinString {
    /// All builtin strings, in the order of their ids.
    pub(crate) const ALL: [BuiltinString; 9] = [
        BuiltinString::RangeCategory,
        BuiltinString::MarkCategory,
        BuiltinString::MpiCategory,
        BuiltinString::RcclCategory,
        BuiltinString::MarkTrack,
        BuiltinString::RequestTrack,
        BuiltinString::CommunicatorCategory,
        BuiltinString::CommunicatorTrack,
        BuiltinString::Lost,
    ];

    /// Returns the text.
    pub(crate) fn text(self) -> &'static str {
        match self {
            BuiltinString::RangeCategory => "MARKER_CORE_RANGE_API",
            BuiltinString::MarkCategory => "MARKER_CORE_API",
            BuiltinString::MpiCategory => "MPI_API",
            BuiltinString::RcclCategory => "RCCL_API",
            BuiltinString::MarkTrack => "roctxMark",
            BuiltinString::RequestTrack => "MPI request",
            BuiltinString::CommunicatorCategory => "COMMUNICATOR",
            BuiltinString::CommunicatorTrack => "communicator",
            BuiltinString::Lost => "(lost)",
        }
    }

    /// Returns the local id.
    pub(crate) fn id(self) -> i64 {
        -1 - self as i64
    }

    /// Returns the position among the strings of a table: after all others.
    pub(crate) fn index(self) -> u32 {
        FIRST_BUILTIN_INDEX + self as u32
    }

    /// Returns the builtin string at this position.
    pub(crate) fn at(index: u32) -> Option<BuiltinString> {
        BuiltinString::ALL.get(index.checked_sub(FIRST_BUILTIN_INDEX)? as usize).copied()
    }

    /// Returns the builtin string with this local id.
    pub(crate) fn from_id(id: i64) -> Option<BuiltinString> {
        BuiltinString::ALL.into_iter().find(|builtin| builtin.id() == id)
    }

    /// Returns the builtin strings that rows of this native table need: their category, then the name of their track
    /// if they become samples.
    pub(crate) fn of_table(table: TableId) -> &'static [BuiltinString] {
        match table {
            native::RANGE => &[BuiltinString::RangeCategory],
            native::MARK => &[BuiltinString::MarkCategory, BuiltinString::MarkTrack],
            native::MPI_CALL => &[BuiltinString::MpiCategory],
            native::RCCL_CALL => &[BuiltinString::RcclCategory],
            native::MPI_REQUEST => &[BuiltinString::MpiCategory, BuiltinString::RequestTrack],
            native::COMMUNICATOR => &[BuiltinString::CommunicatorCategory, BuiltinString::CommunicatorTrack],
            _ => &[],
        }
    }

    /// Returns the name of the track for rows of this table, if they become samples.
    pub(crate) fn track_of(table: TableId) -> Option<BuiltinString> {
        BuiltinString::of_table(table).get(1).copied()
    }
}

/// First position of builtin strings among the strings of a table. No input has that many strings.
const FIRST_BUILTIN_INDEX: u32 = u32::MAX - 64;

/// Columns that become args: column, name of the arg, C type. For a communicator, the C type depends on its library.
pub(super) const ARGS: [(&str, &str, &str); 20] = [
    ("comm_id", "comm", "MPI_Comm"),
    ("label_id", "name", "char*"),
    ("size", "size", "int"),
    ("rank", "rank", "int"),
    ("peer", "peer", "int"),
    ("root", "root", "int"),
    ("tag", "tag", "int"),
    ("count", "count", "size_t"),
    ("datatype_id", "datatype", "ncclDataType_t"),
    ("bytes", "bytes", "size_t"),
    ("seq", "seq", "uint64_t"),
    ("source", "source", "int"),
    ("recvtag", "recvtag", "int"),
    ("recvbytes", "recvbytes", "size_t"),
    ("init_stack_id", "init_stack_id", "uint64_t"),
    ("probe_stack_id", "probe_stack_id", "uint64_t"),
    ("stream", "stream", STREAM_TYPE),
    ("side", "side", "int"),
    ("sources", "sources", "int[]"),
    ("destinations", "destinations", "int[]"),
];
/// Columns of [`ARGS`] with the stack id of another call. Their values in the output are known before the expansion.
pub(crate) const STACK_ARGS: [&str; 2] = ["init_stack_id", "probe_stack_id"];
/// C type of a stream. Its handle is written as an address.
const STREAM_TYPE: &str = "hipStream_t";
/// Common prefix of all RCCL functions.
const RCCL_PREFIX: &[u8] = b"nccl";

/// Maximum bytes of a name that is repeated as an event's message; the collector records at most this much of a name.
pub(super) const MESSAGE_LIMIT: usize = 4096;

/// Tables with rows that become regions.
pub(crate) const REGIONS: [TableId; 3] = [native::RANGE, native::MPI_CALL, native::RCCL_CALL];
/// Tables with rows that become samples.
pub(crate) const SAMPLES: [TableId; 3] = [native::MARK, native::MPI_REQUEST, native::COMMUNICATOR];

/// Returns whether rows of this table are expanded.
pub(crate) fn is_native(table: TableId) -> bool {
    REGIONS.contains(&table) || SAMPLES.contains(&table)
}

/// Returns whether events of this table have the name as their message. AMD's tools read the text of a marker there.
/// A call has its name in its region, a sample has it nowhere else.
pub(super) fn has_message(table: TableId) -> bool {
    !matches!(table, native::MPI_CALL | native::RCCL_CALL)
}

/// Returns whether a native column becomes args.
pub(crate) fn is_arg(column: &str) -> bool {
    ARGS.iter().any(|(known, ..)| *known == column)
}

/// Returns whether a column of [`ARGS`] has ids of strings.
pub(super) fn is_string(column: &str) -> bool {
    column.ends_with("_id") && !STACK_ARGS.contains(&column)
}

/// Returns the number of rows per table that these native rows become.
pub(crate) fn counts(rows: &Rows<Local>) -> Vec<(TableId, u64)> {
    let n = rows.len as u64;
    let args: usize = ARGS.iter().map(|(column, ..)| rows.column(column).filled(rows.len)).sum();
    let target = if SAMPLES.contains(&rows.id()) { rocpd::SAMPLE } else { rocpd::REGION };
    vec![(rocpd::EVENT, n), (target, n), (rocpd::ARG, args as u64)]
}

/// Properties of the source that an expansion needs.
#[derive(Debug)]
pub(crate) struct ExpansionContext<'a> {
    /// Strings of the shard.
    pub strings: &'a ShardStrings,
    /// Tracks of samples.
    pub tracks: &'a SourceTracks,
    /// Time at which the process was last seen, ns of its clock. Spans that were open at its death end there.
    pub last_seen: i64,
}

/// Number of lost strings of native rows that appear only as text, per column of the native table.
pub(crate) type LostTexts = BTreeMap<(TableId, String), u64>;

/// Expands a block of native rows into RocPD rows.
pub(crate) fn expand(
    rows: &Rows<Local>,
    keys: &ExpandedKeys,
    context: &ExpansionContext<'_>,
    lost: &mut LostTexts,
) -> Vec<Rows<Local>> {
    // The name of a range or call belongs to its region; a loss of it is counted there.
    let name = SAMPLES.contains(&rows.id()).then_some("name_id");
    for column in name.iter().chain(&["comm_id", "label_id", "datatype_id"]) {
        let cells = rows.column(column);
        if matches!(cells, Cells::Absent) {
            continue;
        }
        let is_lost = |i: &usize| cells.get(*i) != Value::Null && text_of(cells.get(*i), context).is_none();
        let count = (0..rows.len).filter(is_lost).count() as u64;
        if count > 0 {
            *lost.entry((rows.id(), (*column).to_owned())).or_default() += count;
        }
    }
    let main_rows = match BuiltinString::track_of(rows.id()) {
        Some(track) => samples(rows, keys, track, context),
        None => regions(rows, keys, context),
    };
    let mut expanded = vec![events(rows, keys, true, context), main_rows];
    expanded.extend(args(rows, keys, context));
    expanded
}

/// Expands native rows into rows of one table, without the columns that are not `wanted`. Returns `None` if they become
/// no rows of this table.
pub(crate) fn expand_table(
    target: TableId,
    wanted: &[&str],
    rows: &Rows<Local>,
    keys: &ExpandedKeys,
    context: &ExpansionContext<'_>,
) -> Option<Rows<Local>> {
    match (target, BuiltinString::track_of(rows.id())) {
        (rocpd::EVENT, _) => Some(events(rows, keys, wanted.contains(&"extdata"), context)),
        (rocpd::REGION, None) => Some(regions(rows, keys, context)),
        (rocpd::SAMPLE, Some(track)) => Some(samples(rows, keys, track, context)),
        (rocpd::ARG, _) => args(rows, keys, context),
        _ => None,
    }
}

/// Returns the args of native rows, a column for each name; see `PieceArgs` of rpd-run.
pub(crate) fn arg_columns(rows: &Rows<Local>, context: &ExpansionContext<'_>) -> Vec<(&'static str, Cells)> {
    let mut columns = Vec::new();
    for (column, name, _) in ARGS {
        let cells = rows.column(column);
        match cells {
            Cells::Absent => {}
            cells if is_string(column) => columns.push((name, Cells::Text(texts(cells, rows.len, context)))),
            cells => columns.push((name, cells.clone())),
        }
    }
    columns
}

/// Returns the texts of a column with ids of strings.
fn texts(cells: &Cells, rows: usize, context: &ExpansionContext<'_>) -> TextCells {
    let mut texts = TextCells { codes: Vec::with_capacity(rows), ..TextCells::default() };
    let mut codes: HashMap<i64, u32> = HashMap::new();
    // Adjacent rows mostly have the same text.
    let mut last = None;
    for i in 0..rows {
        let code = match (cells.get(i), last) {
            (Value::Null, _) => TextCells::NULL,
            (Value::Int(id), Some((known, code))) if known == id => code,
            (cell, _) => {
                let id = if let Value::Int(id) = cell { id } else { 0 };
                let text = || text_of(cell, context).unwrap_or(BuiltinString::Lost.text().as_bytes());
                let code = *codes.entry(id).or_insert_with(|| texts.add_entry(text()));
                last = Some((id, code));
                code
            }
        };
        texts.codes.push(code);
    }
    texts
}

/// Returns whether a native column is needed for these columns of a table.
pub(crate) fn needs_column(native: &str, target: TableId, wanted: &[&str]) -> bool {
    match (target, native) {
        (rocpd::ARG, _) => true,
        (rocpd::EVENT, "name_id") => wanted.contains(&"extdata"),
        (rocpd::SAMPLE, "tid") => wanted.contains(&"track_id"),
        // The start of an open call shows its end.
        (rocpd::REGION, "start" | "end") => true,
        (_, native) => wanted.contains(&native),
    }
}

/// Returns the text of a string column's cell.
fn text_of<'a>(cell: Value<'_>, context: &ExpansionContext<'a>) -> Option<&'a [u8]> {
    match cell {
        Value::Int(id) => context.strings.get(id),
        _ => None,
    }
}

/// Returns the rows of these tracks.
pub(crate) fn tracks(tracks: &SourceTracks) -> Option<Rows<Local>> {
    let first = *tracks.values().next()?;
    let mut rows = RowsBuilder::new(table(rocpd::TRACK));
    for (thread, name) in tracks.keys() {
        let thread = if *thread == NO_THREAD { Value::Null } else { Value::Int(*thread) };
        rows.push(&[Value::Int(1), Value::Int(1), thread, Value::Int(name.id())]);
    }
    Some(rows.finish(first))
}

fn table(id: TableId) -> &'static Arc<Table> {
    match Schema::builtin().get(id) {
        Some(table) => table,
        None => unreachable!("{id} is built in"),
    }
}

/// Builds rows of table `id` with keys from `first` on. Columns that are not in `named` are absent.
fn build(id: TableId, first: i64, len: usize, named: Vec<(&str, Cells)>) -> Rows<Local> {
    let table = table(id);
    let mut columns = vec![Cells::Absent; table.columns.len()];
    for (name, cells) in named {
        if let Some(position) = table.position(name) {
            columns[position] = cells;
        }
    }
    Rows::new(table.clone(), Keys::Dense(first), columns, len)
}

fn events(
    rows: &Rows<Local>,
    keys: &ExpandedKeys,
    has_extdata: bool,
    context: &ExpansionContext<'_>,
) -> Rows<Local> {
    let n = rows.len;
    let category = BuiltinString::of_table(rows.id()).first().map_or(0, |category| category.id());
    let mut named = vec![
        ("category_id", Cells::ints(vec![category; n])),
        ("stack_id", rows.column("stack_id").clone()),
        ("parent_stack_id", rows.column("parent_stack_id").clone()),
        ("correlation_id", Cells::ints(vec![0; n])),
    ];
    if has_extdata && has_message(rows.id()) {
        named.push(("extdata", messages(rows, context.strings)));
    }
    build(rocpd::EVENT, keys.event, n, named)
}

/// Returns `{"message": NAME}` for each row.
fn messages(rows: &Rows<Local>, strings: &ShardStrings) -> Cells {
    let names = rows.column("name_id");
    let mut cells = TextCells { codes: Vec::with_capacity(rows.len), ..TextCells::default() };
    let mut codes = HashMap::new();
    for i in 0..rows.len {
        let name = names.int(i).unwrap_or(0);
        let code = *codes.entry(name).or_insert_with(|| {
            let text = strings.get(name).unwrap_or(BuiltinString::Lost.text().as_bytes());
            // The string table has the complete name; this copy is repeated in every row and therefore cut.
            let text = String::from_utf8_lossy(&text[..text.len().min(MESSAGE_LIMIT)]);
            cells.add_entry(json!({ "message": text }).to_string().as_bytes())
        });
        cells.codes.push(code);
    }
    Cells::Text(cells)
}

fn regions(rows: &Rows<Local>, keys: &ExpandedKeys, context: &ExpansionContext<'_>) -> Rows<Local> {
    let n = rows.len;
    let (starts, ends) = (rows.column("start"), rows.column("end"));
    let mut open = Nulls::default();
    let closed: Vec<i64> = (0..n)
        .map(|i| {
            ends.int(i).unwrap_or_else(|| {
                open.set(i);
                context.last_seen.max(starts.int(i).unwrap_or(i64::MIN))
            })
        })
        .collect();
    let mut named = vec![
        ("nid", Cells::ints(vec![1; n])),
        ("pid", Cells::ints(vec![1; n])),
        ("tid", rows.column("tid").clone()),
        ("start", starts.clone()),
        ("end", Cells::ints(closed)),
        ("name_id", names(rows)),
        ("event_id", Cells::ints((keys.event..).take(n).collect())),
    ];
    if open.any() {
        let mut cells = TextCells::default();
        let (plain, still_open) = (cells.add_entry(b"{}"), cells.add_entry(br#"{"rpd":{"open":true}}"#));
        cells.codes = (0..n).map(|i| if open.get(i) { still_open } else { plain }).collect();
        named.push(("extdata", Cells::Text(cells)));
    }
    build(rocpd::REGION, keys.region, n, named)
}

/// Returns the names. Negative ids become 0: they belong to builtin strings and never to a shard.
fn names(rows: &Rows<Local>) -> Cells {
    let mut names = rows.column("name_id").clone();
    if let Cells::Int { values, .. } = &mut names {
        values.iter_mut().for_each(|id| *id = (*id).max(0));
    }
    names
}

fn samples(
    rows: &Rows<Local>,
    keys: &ExpandedKeys,
    name: BuiltinString,
    context: &ExpansionContext<'_>,
) -> Rows<Local> {
    let threads = rows.column("tid");
    let track_of = |thread| context.tracks.get(&(thread, name)).copied();
    let shared = track_of(NO_THREAD).unwrap_or(0);
    let track = |i| threads.int(i).and_then(track_of).unwrap_or(shared);
    build(
        rocpd::SAMPLE,
        keys.sample,
        rows.len,
        vec![
            ("track_id", Cells::ints((0..rows.len).map(track).collect())),
            ("timestamp", rows.column("timestamp").clone()),
            ("event_id", Cells::ints((keys.event..).take(rows.len).collect())),
        ],
    )
}

fn args(rows: &Rows<Local>, keys: &ExpandedKeys, context: &ExpansionContext<'_>) -> Option<Rows<Local>> {
    let columns =
        ARGS.iter().map(|(column, name, kind)| (is_string(column), *name, *kind, rows.column(column)));
    let columns: Vec<_> = columns.filter(|(.., cells)| !matches!(cells, Cells::Absent)).collect();
    if columns.is_empty() {
        return None;
    }
    let functions = rows.column("name_id");
    let is_rccl = |i| text_of(functions.get(i), context).is_some_and(|name| name.starts_with(RCCL_PREFIX));
    let mut out = RowsBuilder::new(table(rocpd::ARG));
    for i in 0..rows.len {
        let mut position = 0i64;
        for (is_string, name, kind, cells) in &columns {
            let number;
            let text = match cells.get(i) {
                Value::Null => continue,
                cell if *is_string => text_of(cell, context).unwrap_or(BuiltinString::Lost.text().as_bytes()),
                Value::Int(v) => {
                    number = if *kind == STREAM_TYPE { format!("{v:#x}") } else { v.to_string() };
                    number.as_bytes()
                }
                Value::Text(text) => text,
                Value::Real(_) | Value::Blob(_) => b"",
            };
            out.push(&[
                Value::Int(keys.event + i as i64),
                Value::Int(position),
                (if *name == "comm" && is_rccl(i) { "ncclComm_t" } else { *kind }).into(),
                (*name).into(),
                Value::Text(text),
            ]);
            position += 1;
        }
    }
    Some(out.finish(keys.arg))
}
