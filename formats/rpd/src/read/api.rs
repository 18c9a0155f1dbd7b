//! `rocpd_api` and what hangs on it: calls and roctx ranges as events, regions and args.

use super::census::{Census, is_marker};
use super::devices::Devices;
use super::follow::Follow;
use super::ids::IdMap;
use super::output::Output;
use super::schema::{Input, Select, identifier};
use super::value::{MAX_TEXT, cut, int, text};
use super::{EMPTY_JSON, OWNER, Options, TranslateError, UNKNOWN, ZERO};
use rpd_shard::model::{Value, rocpd};
use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde_json::{Value as Json, json};
use std::io::Write;

/// Category of roctx ranges, as rocprofv3 spells it.
const MARKER: &str = "MARKER_CORE_RANGE_API";
/// Category of what schema 2 does not tell: mostly calls of the profiler itself.
const OTHER: &str = "RPD";
/// Domains and beginnings of names, and their categories as rocprofv3 spells them.
const CATEGORIES: [(&str, &str); 4] =
    [("hip", "HIP_RUNTIME_API_EXT"), ("hsa", "HSA_CORE_API"), ("rccl", "RCCL_API"), ("nccl", "RCCL_API")];
/// Most frames of one call, and bytes of their names.
const MAX_FRAMES: (usize, usize) = (1024, 256 << 10);

/// Where the columns of a call are in a row of the query.
struct Columns {
    id: usize,
    pid: usize,
    tid: usize,
    start: usize,
    end: usize,
    name: usize,
    domain: usize,
    category: usize,
    args: usize,
    args_id: usize,
    /// Values of the tables that describe a call: name of the arg and place. The second says whether
    /// the value is the name of the kernel.
    values: Vec<(String, bool, usize)>,
    /// Whether there is a row of `rocpd_kernelapi`, of `rocpd_copyapi`.
    described: [usize; 2],
}

const DESCRIPTIONS: [(&str, &str); 2] = [("rocpd_kernelapi", "k"), ("rocpd_copyapi", "p")];

impl Columns {
    fn add(input: &Input, select: &mut Select<'_>) -> Columns {
        let api = "rocpd_api";
        // The text of schema 2 is among the other strings.
        let texts = if input.table("rocpd_ustring").is_some() { "rocpd_ustring" } else { "rocpd_string" };
        let mut columns = Columns {
            id: select.column(api, "a", "id"),
            pid: select.column(api, "a", "pid"),
            tid: select.column(api, "a", "tid"),
            start: select.column(api, "a", "start"),
            end: select.column(api, "a", "end"),
            name: select.text((api, "a", "apiName_id"), "rocpd_string", "n"),
            domain: select.text((api, "a", "domain_id"), "rocpd_string", "d"),
            category: select.text((api, "a", "category_id"), "rocpd_string", "c"),
            args: select.text((api, "a", "args_id"), texts, "t"),
            args_id: select.column(api, "a", "args_id"),
            values: Vec::new(),
            described: [0; 2],
        };
        for ((table, alias), described) in DESCRIPTIONS.into_iter().zip(&mut columns.described) {
            select.join(table, alias, "api_ptr_id", "a.id");
            *described = select.column(table, alias, "api_ptr_id");
            for column in input.table(table).into_iter().flat_map(|info| &info.columns) {
                match column.name.as_str() {
                    "api_ptr_id" => {}
                    "kernelName_id" => {
                        let place = select.text((table, alias, "kernelName_id"), "rocpd_string", "kn");
                        columns.values.push(("kernelName".to_owned(), true, place));
                    }
                    name => columns.values.push((name.to_owned(), false, select.column(table, alias, name))),
                }
            }
        }
        columns
    }
}

/// Adds all calls and ranges. Returns which region each became; its key is its stack id too.
pub(super) fn translate<W: Write>(
    input: &Input,
    census: &Census,
    options: &Options,
    devices: &mut Devices,
    output: &mut Output<'_, W>,
) -> Result<IdMap, TranslateError> {
    let failed = |source| input.error("rocpd_api", source);
    let mut select = input.select("rocpd_api", "a");
    let columns = Columns::add(input, &mut select);
    let mut query = input.conn.prepare(&select.sql("ORDER BY a.id")).map_err(failed)?;
    let mut rows = query.query([]).map_err(failed)?;

    let mut launched = input.conn.prepare(&launched_sql(input)).map_err(failed)?;
    let launched = launched.query([]).map_err(failed)?;
    let mut launched = Follow::new(launched, input, "rocpd_api_ops", |_| ())?;
    let mut frames = input.conn.prepare(&frames_sql(input)).map_err(failed)?;
    let frames = frames.query([]).map_err(failed)?;
    let mut frames = Follow::new(frames, input, "rocpd_stackframe", Frame::take)?;

    let mut calls = Calls { census, columns, options, devices, output, ids: IdMap::default() };
    while let Some(row) = rows.next().map_err(failed)? {
        let (mut has_op, mut stack) = (false, Stack::default());
        if let Some(id) = calls.int(row, calls.columns.id) {
            while launched.next_of(id)?.is_some() {
                has_op = true;
            }
            while let Some(frame) = frames.next_of(id)? {
                stack.add(frame);
            }
        }
        calls.call(row, has_op, stack)?;
    }
    let ids = calls.ids;
    let (read, strays) = frames.finish()?;
    output.reads("rocpd_stackframe", read);
    output.misses("rocpd_stackframe", "api_ptr_id", strays);
    output.lose(0, "rocpd_stackframe", Some(rocpd::EVENT), strays);
    for (table, _) in DESCRIPTIONS {
        strays_of(input, table, output)?;
    }
    Ok(ids)
}

/// Ids of the calls that an operation is taken to come from: of several, the first.
fn launched_sql(input: &Input) -> String {
    let whole = input.table("rocpd_api_ops").is_some_and(|info| {
        ["id", "api_id", "op_id"].into_iter().all(|column| info.column(column).is_some())
    });
    match input.table("rocpd_op") {
        Some(_) if whole => "SELECT api_id FROM (SELECT ao.api_id AS api_id, min(ao.id) FROM rocpd_api_ops ao
                              JOIN rocpd_op o ON o.id = ao.op_id GROUP BY ao.op_id) ORDER BY api_id"
            .to_owned(),
        _ => "SELECT NULL LIMIT 0".to_owned(),
    }
}

fn frames_sql(input: &Input) -> String {
    match input.table("rocpd_stackframe") {
        Some(info) if info.column("api_ptr_id").is_some() => {
            let column = |name| info.column(name).map_or("NULL".to_owned(), |c| identifier(&c.name));
            // The limit keeps SQLite from sorting names, which are long.
            format!(
                "SELECT f.call, f.depth, s.string FROM (SELECT api_ptr_id AS call, {} AS depth, {} AS name
                   FROM rocpd_stackframe ORDER BY 1, 2 LIMIT -1 OFFSET 0) f
                   LEFT JOIN rocpd_string s ON s.id = f.name",
                column("depth"),
                column("name_id")
            )
        }
        _ => "SELECT NULL LIMIT 0".to_owned(),
    }
}

/// Counts the rows of a table that describe no call.
fn strays_of<W: Write>(
    input: &Input,
    table: &'static str,
    output: &mut Output<'_, W>,
) -> Result<(), TranslateError> {
    if input.table(table).is_some() {
        let sql = format!(
            "SELECT count(*) FROM {table} k LEFT JOIN rocpd_api a ON a.id = k.api_ptr_id WHERE a.id IS NULL"
        );
        let strays = input.number(table, &sql)?.unsigned_abs();
        output.reads(table, strays);
        output.misses(table, "api_ptr_id", strays);
        output.lose(0, table, Some(rocpd::ARG), strays);
    }
    Ok(())
}

/// A row of `rocpd_stackframe`.
struct Frame {
    depth: Option<i64>,
    name: Vec<u8>,
}

impl Frame {
    fn take(row: &Row<'_>) -> Frame {
        let name = row.get_ref(2).ok().and_then(text);
        let name = name.map_or_else(|| UNKNOWN.to_vec(), |name| cut(&name, MAX_TEXT).to_vec());
        Frame { depth: row.get_ref(1).ok().and_then(int), name }
    }
}

/// The call stack of one call.
#[derive(Default)]
struct Stack {
    frames: Vec<Json>,
    bytes: usize,
    /// Frames beyond what is kept of one call.
    lost: u64,
}

impl Stack {
    fn add(&mut self, frame: Frame) {
        self.bytes += frame.name.len();
        if self.frames.len() == MAX_FRAMES.0 || self.bytes > MAX_FRAMES.1 {
            self.lost += 1;
            return;
        }
        self.frames.push(json!({ "depth": frame.depth, "name": String::from_utf8_lossy(&frame.name) }));
    }
}

/// Adds calls one by one.
struct Calls<'c, 'o, 'i, W: Write> {
    census: &'c Census,
    columns: Columns,
    options: &'c Options,
    devices: &'c mut Devices,
    output: &'o mut Output<'i, W>,
    ids: IdMap,
}

impl<W: Write> Calls<'_, '_, '_, W> {
    fn int(&self, row: &Row<'_>, column: usize) -> Option<i64> {
        row.get_ref(column).ok().and_then(int)
    }

    fn call(&mut self, row: &Row<'_>, has_op: bool, stack: Stack) -> Result<(), TranslateError> {
        let columns = &self.columns;
        let value = |column| row.get_ref(column).unwrap_or(ValueRef::Null);
        self.output.read("rocpd_api");
        for ((table, _), described) in DESCRIPTIONS.into_iter().zip(columns.described) {
            if value(described) != ValueRef::Null {
                self.output.read(table);
            }
        }
        let id = self.int(row, columns.id);
        let owner = self.census.by_pid(self.int(row, columns.pid));
        let source = owner.unwrap_or_else(|| self.census.by_session(id));
        let Some(mut start) = self.int(row, columns.start) else {
            return self.lose(source, row, stack);
        };
        if owner.is_none() {
            self.output.miss("rocpd_api", "pid");
        }
        let mut end = self.int(row, columns.end).unwrap_or_else(|| {
            self.output.miss("rocpd_api", "end");
            start
        });
        let name = text(value(columns.name));
        if name.is_none() {
            self.output.miss("rocpd_api", "apiName_id");
        }
        let args = text(value(columns.args));
        if args.is_none() && value(columns.args_id) != ValueRef::Null {
            self.output.miss("rocpd_api", "args_id");
        }
        let tid = self.int(row, columns.tid);
        if tid.is_none() {
            self.output.miss("rocpd_api", "tid");
        }
        let is_range = is_marker(value(columns.name)) || is_marker(value(columns.domain));
        if is_range && let Some(offset) = self.options.marker_offset {
            start = start.saturating_add(offset);
            end = end.saturating_add(offset);
        }

        let thread = self.devices.thread(source, self.census.tid(tid), self.output)?;
        let domain = text(value(columns.domain)).unwrap_or_default();
        let name = name.as_deref().unwrap_or(UNKNOWN);
        let category = category(is_range, &domain, name);
        let category = self.output.string(&category)?;
        let name = self.output.string(name)?;
        let args = args.as_deref().map(|args| self.output.cut(args, MAX_TEXT)).unwrap_or_default();
        let message = if is_range { args } else { b"" };
        let extdata = call_extdata(message, &domain, &text(value(columns.category)).unwrap_or_default());
        self.output.lose(source, "rocpd_stackframe", Some(rocpd::EVENT), stack.lost);
        let frames = (!stack.frames.is_empty()).then(|| json!({ "frames": stack.frames }).to_string());

        // Events and regions are added in step, so that keys are equal; the stack id takes the same number.
        let stack_id = Value::Int(self.output.next_region(source));
        let event = [
            category,
            stack_id,
            ZERO,
            ZERO,
            frames.as_deref().map_or(EMPTY_JSON, Value::from),
            EMPTY_JSON,
            extdata.as_deref().map_or(EMPTY_JSON, Value::from),
        ];
        let event = self.output.push(source, rocpd::EVENT, &event)?;
        let region =
            [OWNER, OWNER, thread, Value::Int(start), Value::Int(end), name, Value::Int(event), EMPTY_JSON];
        let region = self.output.push(source, rocpd::REGION, &region)?;
        debug_assert!(region == event && stack_id == Value::Int(event));
        if let Some(id) = id {
            self.ids.add(id, source, region);
        }
        self.args(row, (source, event), has_op, if is_range { b"" } else { args })
    }

    /// Counts a call without a time.
    fn lose(&mut self, source: u32, row: &Row<'_>, stack: Stack) -> Result<(), TranslateError> {
        self.output.miss("rocpd_api", "start");
        self.output.lose(source, "rocpd_api", Some(rocpd::REGION), 1);
        for ((table, _), described) in DESCRIPTIONS.into_iter().zip(self.columns.described) {
            let there = row.get_ref(described).is_ok_and(|value| value != ValueRef::Null);
            self.output.lose(source, table, Some(rocpd::ARG), u64::from(there));
        }
        let frames = stack.frames.len() as u64 + stack.lost;
        self.output.lose(source, "rocpd_stackframe", Some(rocpd::EVENT), frames);
        Ok(())
    }

    /// Adds the values of a call. The kernel's name is left out where an operation has it.
    fn args(
        &mut self,
        row: &Row<'_>,
        (source, event): (u32, i64),
        has_op: bool,
        args: &[u8],
    ) -> Result<(), TranslateError> {
        let mut position = 0;
        for (name, is_kernel, column) in &self.columns.values {
            let value = row.get_ref(*column).unwrap_or(ValueRef::Null);
            let Some(shown) = text(value).filter(|shown| !shown.is_empty()) else { continue };
            if *is_kernel && has_op {
                continue;
            }
            let kind = if matches!(value, ValueRef::Integer(_)) { "int" } else { "string" };
            let shown = self.output.cut(&shown, MAX_TEXT);
            let extdata = match name.as_str() {
                "stream" => match self.devices.stream(source, shown, self.output)? {
                    Value::Int(stream) => Some(json!({ "stream_id": stream }).to_string()),
                    _ => None,
                },
                _ => None,
            };
            let row = [
                Value::Int(event),
                Value::Int(position),
                Value::from(kind),
                Value::from(name.as_str()),
                Value::Text(shown),
                extdata.as_deref().map_or(EMPTY_JSON, Value::from),
            ];
            self.output.push(source, rocpd::ARG, &row)?;
            position += 1;
        }
        if !args.is_empty() {
            let row = [
                Value::Int(event),
                Value::Int(position),
                Value::from("string"),
                Value::from("args"),
                Value::Text(args),
                EMPTY_JSON,
            ];
            self.output.push(source, rocpd::ARG, &row)?;
        }
        Ok(())
    }
}

/// The category of a call: rocprofv3's for its domain, else the domain itself; in schema 2, by its name.
fn category(is_range: bool, domain: &[u8], name: &[u8]) -> Vec<u8> {
    if is_range {
        return MARKER.into();
    }
    let whose = if domain.is_empty() { name } else { domain };
    let starts = |prefix: &str| {
        whose.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
    };
    match CATEGORIES.iter().find(|(prefix, _)| starts(prefix)) {
        Some((_, category)) => (*category).into(),
        None if domain.is_empty() => OTHER.into(),
        None => domain.into(),
    }
}

/// What the event of a call has beside its columns; `None` for nothing.
fn call_extdata(message: &[u8], domain: &[u8], category: &[u8]) -> Option<String> {
    let lossy = String::from_utf8_lossy;
    let mut extdata = serde_json::Map::new();
    if !message.is_empty() {
        extdata.insert("message".to_owned(), json!(lossy(message)));
    }
    let spelled =
        [("domain", domain), ("category", category)].into_iter().filter(|(_, text)| !text.is_empty());
    let spelled: serde_json::Map<_, _> =
        spelled.map(|(key, text)| (key.to_owned(), json!(lossy(cut(text, 256))))).collect();
    if !spelled.is_empty() {
        extdata.insert("rpd".to_owned(), spelled.into());
    }
    (!extdata.is_empty()).then(|| Json::Object(extdata).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_are_those_of_rocprofv3_where_it_has_one() {
        let of = |range, domain: &str, name: &str| {
            String::from_utf8(category(range, domain.as_bytes(), name.as_bytes())).unwrap()
        };
        assert_eq!(of(false, "", "hipMalloc"), "HIP_RUNTIME_API_EXT");
        assert_eq!(of(false, "", "hsa_signal_create"), "HSA_CORE_API");
        assert_eq!(of(false, "", "ncclAllReduce"), "RCCL_API");
        assert_eq!(of(true, "", "UserMarker"), "MARKER_CORE_RANGE_API");
        assert_eq!(of(false, "", "OpTable::writeRows"), "RPD");
        assert_eq!(of(false, "HIP", "anything"), "HIP_RUNTIME_API_EXT");
        assert_eq!(of(false, "rocfft", "hipMalloc"), "rocfft");
    }
}
