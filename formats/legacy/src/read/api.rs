//! Converts `rocpd_api` and the tables that describe its rows: calls and roctx ranges become events, regions and
//! args.

use super::census::is_marker;
use super::follow::JoinedRows;
use super::ids::IdMap;
use super::ops::is_dispatch;
use super::output::RpdOutput;
use super::schema::{RpdFile, Select, identifier};
use super::value::{MAX_TEXT, int, text};
use super::{EMPTY_JSON, PLAIN_EVENT, RpdOptions, RpdReadError, UNKNOWN};
use rpd_shard::model::row_types::{ArgRow, EventKey, EventRow, RegionRow, StackId};
use rpd_shard::model::{LocalNs, rocpd};
use rpd_translator::cut_text;
use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde_json::{Value as Json, json};
use std::borrow::Cow;

/// Category of roctx ranges, as rocprofv3 spells it.
const MARKER: &str = "MARKER_CORE_RANGE_API";
/// Category of rows for which schema 2 states none: mostly calls of the profiler itself.
const OTHER: &str = "RPD";
/// Prefixes of domains and names, and the categories that rocprofv3 uses for them.
const CATEGORIES: [(&str, &str); 4] =
    [("hip", "HIP_RUNTIME_API_EXT"), ("hsa", "HSA_CORE_API"), ("rccl", "RCCL_API"), ("nccl", "RCCL_API")];
/// Prefixes of rocprofv3's categories, and the domains that a merge writes for them.
const DOMAINS: [(&str, &str); 4] =
    [("HIP_", "hip"), ("HSA_", "hsa"), ("MARKER_", "roctx"), ("RCCL_", "rccl")];
/// Prefix of the categories of rocprof-sys.
const SYS_PREFIX: &str = "rocm_";
/// Maximum number of frames of one call, and maximum bytes of their names.
const MAX_FRAMES: (usize, usize) = (1024, 256 << 10);

/// Positions of a call's columns in a row of the query.
struct CallColumns {
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
    /// Columns of `rocpd_kernelapi` and of `rocpd_copyapi`: whether there is a row, and its values.
    described: [DescriptionColumns; 2],
}

/// Positions of the columns of a table that describes calls, in a row of the query.
#[derive(Default)]
struct DescriptionColumns {
    key: usize,
    /// Name of the arg, whether it is the name of the kernel, and position.
    values: Vec<(String, bool, usize)>,
}

impl DescriptionColumns {
    /// Returns the non-empty values of a row, also as texts. Omits the kernel's name if a dispatch has it.
    fn values<'r>(
        &'r self,
        row: &'r Row<'_>,
        has_dispatch: bool,
    ) -> impl Iterator<Item = (&'r str, ValueRef<'r>, Cow<'r, [u8]>)> {
        self.values.iter().filter_map(move |(name, is_kernel, column)| {
            let value = row.get_ref(*column).unwrap_or(ValueRef::Null);
            let shown = text(value).filter(|shown| !(shown.is_empty() || *is_kernel && has_dispatch))?;
            Some((name.as_str(), value, shown))
        })
    }
}

const DESCRIPTIONS: [(&str, &str); 2] = [("rocpd_kernelapi", "k"), ("rocpd_copyapi", "p")];

impl CallColumns {
    fn add(input: &RpdFile, select: &mut Select<'_>) -> CallColumns {
        let api = "rocpd_api";
        // Schema 2 stores this text among the other strings.
        let texts = if input.table("rocpd_ustring").is_some() { "rocpd_ustring" } else { "rocpd_string" };
        let mut columns = CallColumns {
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
            described: Default::default(),
        };
        for ((table, alias), described) in DESCRIPTIONS.into_iter().zip(&mut columns.described) {
            select.join(table, alias, "api_ptr_id", "a.id");
            described.key = select.column(table, alias, "api_ptr_id");
            for column in input.table(table).into_iter().flat_map(|info| &info.columns) {
                match column.name.as_str() {
                    "api_ptr_id" => {}
                    "kernelName_id" => {
                        let place = select.text((table, alias, "kernelName_id"), "rocpd_string", "kn");
                        described.values.push(("kernelName".to_owned(), true, place));
                    }
                    name => {
                        described.values.push((name.to_owned(), false, select.column(table, alias, name)));
                    }
                }
            }
        }
        columns
    }
}

/// Writes all calls and ranges. Returns the region of each; the key of a region is also its stack id.
pub(super) fn translate(options: &RpdOptions, output: &mut RpdOutput<'_>) -> Result<IdMap, RpdReadError> {
    let input = output.input;
    let failed = |source| input.error("rocpd_api", source);
    let mut select = input.select("rocpd_api", "a");
    let columns = CallColumns::add(input, &mut select);
    let mut query = input.conn.prepare(&select.sql("ORDER BY a.id")).map_err(failed)?;
    let mut rows = query.query([]).map_err(failed)?;

    let mut launched = input.conn.prepare(&launched_sql(input)).map_err(failed)?;
    let launched = launched.query([]).map_err(failed)?;
    let mut launched = JoinedRows::new(launched, input, "rocpd_api_ops", |row| {
        row.get_ref(1).ok().and_then(text).is_none_or(|op_type| is_dispatch(&op_type))
    })?;
    let mut frames = input.conn.prepare(&frames_sql(input)).map_err(failed)?;
    let frames = frames.query([]).map_err(failed)?;
    let mut frames = JoinedRows::new(frames, input, "rocpd_stackframe", StackframeRow::take)?;

    let mut calls = CallWriter { columns, options, output, ids: IdMap::default() };
    while let Some(row) = rows.next().map_err(failed)? {
        let (mut has_dispatch, mut stack) = (false, CallStack::default());
        if let Some(id) = calls.int(row, calls.columns.id) {
            while let Some(is_dispatch) = launched.next_of(id)? {
                has_dispatch |= is_dispatch;
            }
            while let Some(frame) = frames.next_of(id)? {
                stack.add(frame);
            }
        }
        calls.call(row, has_dispatch, stack)?;
    }
    let ids = calls.ids;
    let (read, strays) = frames.finish()?;
    output.count_read("rocpd_stackframe", read);
    output.misses("rocpd_stackframe", "api_ptr_id", strays);
    output.lose(0, "rocpd_stackframe", Some(rocpd::EVENT), strays);
    for (table, _) in DESCRIPTIONS {
        strays_of(table, output)?;
    }
    Ok(ids)
}

/// Returns a query for the call of each operation (the first one, if there are several) and the type of the
/// operation.
fn launched_sql(input: &RpdFile) -> String {
    let whole = input.table("rocpd_api_ops").is_some_and(|info| {
        ["id", "api_id", "op_id"].into_iter().all(|column| info.column(column).is_some())
    });
    match input.table("rocpd_op") {
        Some(_) if whole => {
            "SELECT call, t.string FROM (SELECT ao.api_id AS call, o.opType_id AS kind, min(ao.id)
                               FROM rocpd_api_ops ao JOIN rocpd_op o ON o.id = ao.op_id GROUP BY ao.op_id)
                              LEFT JOIN rocpd_string t ON t.id = kind ORDER BY call"
                .to_owned()
        }
        _ => "SELECT NULL LIMIT 0".to_owned(),
    }
}

fn frames_sql(input: &RpdFile) -> String {
    match input.table("rocpd_stackframe") {
        Some(info) if info.column("api_ptr_id").is_some() => {
            let column = |name| info.column(name).map_or("NULL".to_owned(), |c| identifier(&c.name));
            // The limit prevents SQLite from sorting names, which are long.
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
fn strays_of(table: &'static str, output: &mut RpdOutput<'_>) -> Result<(), RpdReadError> {
    let input = output.input;
    if input.table(table).is_some() {
        let sql = format!(
            "SELECT count(*) FROM {table} k LEFT JOIN rocpd_api a ON a.id = k.api_ptr_id WHERE a.id IS NULL"
        );
        let strays = input.number(table, &sql)?.unsigned_abs();
        output.count_read(table, strays);
        output.misses(table, "api_ptr_id", strays);
        output.lose(0, table, Some(rocpd::ARG), strays);
    }
    Ok(())
}

/// A row of `rocpd_stackframe`.
struct StackframeRow {
    depth: Option<i64>,
    name: Vec<u8>,
}

impl StackframeRow {
    fn take(row: &Row<'_>) -> StackframeRow {
        let name = row.get_ref(2).ok().and_then(text);
        let name = name.map_or_else(|| UNKNOWN.to_vec(), |name| cut_text(&name, MAX_TEXT).to_vec());
        StackframeRow { depth: row.get_ref(1).ok().and_then(int), name }
    }
}

/// The call stack of one call.
#[derive(Default)]
struct CallStack {
    frames: Vec<Json>,
    bytes: usize,
    /// Number of frames beyond the limits of one call.
    lost: u64,
}

impl CallStack {
    fn add(&mut self, frame: StackframeRow) {
        self.bytes += frame.name.len();
        if self.frames.len() == MAX_FRAMES.0 || self.bytes > MAX_FRAMES.1 {
            self.lost += 1;
            return;
        }
        self.frames.push(json!({ "depth": frame.depth, "name": String::from_utf8_lossy(&frame.name) }));
    }
}

/// Writes calls one by one.
struct CallWriter<'c, 'o, 'i> {
    columns: CallColumns,
    options: &'c RpdOptions,
    output: &'o mut RpdOutput<'i>,
    ids: IdMap,
}

impl CallWriter<'_, '_, '_> {
    fn int(&self, row: &Row<'_>, column: usize) -> Option<i64> {
        row.get_ref(column).ok().and_then(int)
    }

    fn call(&mut self, row: &Row<'_>, has_dispatch: bool, stack: CallStack) -> Result<(), RpdReadError> {
        let columns = &self.columns;
        let value = |column| row.get_ref(column).unwrap_or(ValueRef::Null);
        self.output.count_read("rocpd_api", 1);
        for ((table, _), described) in DESCRIPTIONS.into_iter().zip(&columns.described) {
            if value(described.key) != ValueRef::Null {
                self.output.count_read(table, 1);
            }
        }
        let id = self.int(row, columns.id);
        let owner = self.output.census.by_pid(self.int(row, columns.pid));
        let source = owner.unwrap_or_else(|| self.output.census.by_session(id));
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

        let thread = self.output.thread(source, self.output.census.tid(tid))?;
        let spelled = [value(columns.domain), value(columns.category)].map(text);
        let [domain, spelled_category] = spelled.each_ref().map(|t| t.as_deref().unwrap_or_default());
        let name = name.as_deref().unwrap_or(UNKNOWN);
        let category = category(is_range, domain, spelled_category, name);
        let is_implied = (domain, spelled_category) == (domain_of(&category), &*category);
        let name = self.output.string(name)?;
        let args = args.as_deref().map(|args| self.output.cut(args, MAX_TEXT)).unwrap_or_default();
        let mut extdata =
            CallExtdata { message: if is_range { args } else { b"" }, ..CallExtdata::default() };
        if spelled.iter().any(Option::is_some) && !is_implied {
            extdata.spelled = Some((domain, spelled_category));
        }
        for (count, described) in extdata.described.iter_mut().zip(&columns.described) {
            let there = value(described.key) != ValueRef::Null;
            *count = there.then(|| described.values(row, has_dispatch).count());
        }
        let extdata = extdata.json();
        let category = self.output.string(&category)?;
        self.output.lose(source, "rocpd_stackframe", Some(rocpd::EVENT), stack.lost);
        let frames = (!stack.frames.is_empty()).then(|| json!({ "frames": stack.frames }).to_string());

        // Events and regions are written in pairs, so that their keys are equal. The stack id has the same number.
        let stack_id = self.output.next_region(source);
        let event = EventRow {
            category_id: Some(category),
            stack_id: Some(StackId(stack_id)),
            call_stack: Some(frames.as_deref().map_or(EMPTY_JSON, str::as_bytes)),
            extdata: Some(extdata.as_deref().map_or(EMPTY_JSON, str::as_bytes)),
            ..PLAIN_EVENT
        };
        let event = self.output.row(source, &event)?;
        let region = RegionRow {
            tid: thread,
            start: LocalNs(start),
            end: LocalNs(end),
            name_id: name,
            event_id: Some(event),
            extdata: Some(EMPTY_JSON),
        };
        let region = self.output.row(source, &region)?.get();
        debug_assert!(region == event.get() && region == stack_id);
        if let Some(id) = id {
            self.ids.add(id, source, region);
        }
        self.args(row, (source, event), has_dispatch, if is_range { b"" } else { args })
    }

    /// Counts a call without a time as lost.
    fn lose(&mut self, source: u32, row: &Row<'_>, stack: CallStack) -> Result<(), RpdReadError> {
        self.output.miss("rocpd_api", "start");
        self.output.lose(source, "rocpd_api", Some(rocpd::REGION), 1);
        for ((table, _), described) in DESCRIPTIONS.into_iter().zip(&self.columns.described) {
            let there = row.get_ref(described.key).is_ok_and(|value| value != ValueRef::Null);
            self.output.lose(source, table, Some(rocpd::ARG), u64::from(there));
        }
        let frames = stack.frames.len() as u64 + stack.lost;
        self.output.lose(source, "rocpd_stackframe", Some(rocpd::EVENT), frames);
        Ok(())
    }

    /// Writes the values of a call as args, followed by its args string.
    fn args(
        &mut self,
        row: &Row<'_>,
        (source, event): (u32, EventKey),
        has_dispatch: bool,
        args: &[u8],
    ) -> Result<(), RpdReadError> {
        let mut position = 0i64;
        for (name, value, shown) in self.columns.described.iter().flat_map(|d| d.values(row, has_dispatch)) {
            let kind = if matches!(value, ValueRef::Integer(_)) { "int" } else { "string" };
            let shown = self.output.cut(&shown, MAX_TEXT);
            let extdata = match name {
                "stream" => {
                    let stream = self.output.stream(source, shown)?;
                    Some(json!({ "stream_id": stream.get() }).to_string())
                }
                _ => None,
            };
            let row = ArgRow {
                event_id: event,
                position: position.into(),
                kind: kind.as_bytes(),
                name: name.as_bytes(),
                value: Some(shown),
                extdata: Some(extdata.as_deref().map_or(EMPTY_JSON, str::as_bytes)),
            };
            self.output.row(source, &row)?;
            position += 1;
        }
        if !args.is_empty() {
            let row = ArgRow {
                event_id: event,
                position: position.into(),
                kind: b"string",
                name: b"args",
                value: Some(args),
                extdata: Some(EMPTY_JSON),
            };
            self.output.row(source, &row)?;
        }
        Ok(())
    }
}

/// Returns the category of a call. A category in the spelling of rocprofv3 or rocprof-sys is kept. Otherwise the
/// domain selects a category of rocprofv3; other domains become the category themselves. In schema 2 the name takes
/// the place of the domain.
fn category(is_range: bool, domain: &[u8], spelled: &[u8], name: &[u8]) -> Vec<u8> {
    let is_known = DOMAINS.iter().any(|(prefix, of)| {
        starts(plain(spelled), prefix) && domain == of.as_bytes() && is_range == (*of == "roctx")
    });
    if is_known {
        return spelled.into();
    }
    if is_range {
        return MARKER.into();
    }
    let named = if domain.is_empty() { name } else { domain };
    match CATEGORIES.iter().find(|(prefix, _)| starts(named, prefix)) {
        Some((_, category)) => (*category).into(),
        None if domain.is_empty() => OTHER.into(),
        None => domain.into(),
    }
}

/// Returns the domain that a merge writes for a category.
fn domain_of(category: &[u8]) -> &[u8] {
    let known = DOMAINS.iter().find(|(prefix, _)| starts(plain(category), prefix));
    known.map_or(category, |(_, domain)| domain.as_bytes())
}

/// Returns a category in the spelling of rocprofv3: removes the prefix `rocm_` of rocprof-sys.
fn plain(category: &[u8]) -> &[u8] {
    if starts(category, SYS_PREFIX) { category.get(SYS_PREFIX.len()..).unwrap_or(category) } else { category }
}

fn starts(text: &[u8], prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}

/// Extdata of a call's event.
#[derive(Default)]
struct CallExtdata<'t> {
    /// Text of a roctx range.
    message: &'t [u8],
    /// Domain and category of the file, if RocPD's category does not determine them.
    spelled: Option<(&'t [u8], &'t [u8])>,
    /// Number of args from the row of `rocpd_kernelapi`, which are the first args, and number of the following args
    /// from `rocpd_copyapi`.
    described: [Option<usize>; 2],
}

impl CallExtdata<'_> {
    /// Returns the extdata as JSON; `None` if there is nothing to store.
    fn json(&self) -> Option<String> {
        let lossy = String::from_utf8_lossy;
        let mut rpd = serde_json::Map::new();
        if let Some((domain, category)) = self.spelled {
            rpd.insert("domain".to_owned(), json!(lossy(cut_text(domain, 256))));
            if !category.is_empty() {
                rpd.insert("category".to_owned(), json!(lossy(cut_text(category, 256))));
            }
        }
        for (key, count) in ["kernelapi", "copyapi"].into_iter().zip(self.described) {
            rpd.extend(count.map(|count| (key.to_owned(), json!(count))));
        }
        let mut extdata = serde_json::Map::new();
        if !self.message.is_empty() {
            extdata.insert("message".to_owned(), json!(lossy(self.message)));
        }
        if !rpd.is_empty() {
            extdata.insert("rpd".to_owned(), rpd.into());
        }
        (!extdata.is_empty()).then(|| Json::Object(extdata).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_are_those_of_rocprofv3_where_it_has_one() {
        let spelled = |range, domain: &str, spelled: &str, name: &str| {
            let found = category(range, domain.as_bytes(), spelled.as_bytes(), name.as_bytes());
            String::from_utf8(found).unwrap()
        };
        let of = |range, domain, name| spelled(range, domain, "", name);
        assert_eq!(of(false, "", "hipMalloc"), "HIP_RUNTIME_API_EXT");
        assert_eq!(of(false, "", "hsa_signal_create"), "HSA_CORE_API");
        assert_eq!(of(false, "", "ncclAllReduce"), "RCCL_API");
        assert_eq!(of(true, "", "UserMarker"), "MARKER_CORE_RANGE_API");
        assert_eq!(of(false, "", "OpTable::writeRows"), "RPD");
        assert_eq!(of(false, "HIP", "anything"), "HIP_RUNTIME_API_EXT");
        assert_eq!(of(false, "rocfft", "hipMalloc"), "rocfft");
        assert_eq!(spelled(false, "hip", "HIP_COMPILER_API", "f"), "HIP_COMPILER_API");
        assert_eq!(spelled(true, "roctx", "MARKER_CORE_API", "UserMarker"), "MARKER_CORE_API");
        assert_eq!(spelled(false, "hip", "rocm_hip_api", "f"), "rocm_hip_api");
        assert_eq!(spelled(true, "roctx", "rocm_marker_api", "UserMarker"), "rocm_marker_api");
        assert_eq!(spelled(true, "roctx", "HIP_COMPILER_API", "UserMarker"), "MARKER_CORE_RANGE_API");
        assert_eq!(spelled(false, "hip", "memory", "f"), "HIP_RUNTIME_API_EXT");
    }
}
