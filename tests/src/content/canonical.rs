use super::tables::{ContentTables, RowsById};
use rusqlite::types::Value;
use serde_json::Value as JsonCell;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use twox_hash::XxHash3_64;

/// Content of a database: per table the contents of its rows, sorted.
pub type DatabaseContent = BTreeMap<String, Vec<String>>;

/// Tables with rows that own an event.
const OWNERS: [&str; 7] = [
    "rocpd_region",
    "rocpd_sample",
    "rocpd_kernel_dispatch",
    "rocpd_memory_copy",
    "rocpd_memory_allocate",
    "rocpd_arg",
    "rocpd_pmc_event",
];

/// Categories of the events that the collector records itself. Their correlation id is nobody's, and
/// the types of their arguments are words for people.
const NATIVE: [&str; 5] = ["MARKER_CORE_RANGE_API", "MARKER_CORE_API", "MPI_API", "RCCL_API", "COMMUNICATOR"];

/// The table that a column refers to.
fn target(table: &str, column: &str) -> Option<&'static str> {
    Some(match (table, column) {
        ("rocpd_info_process", "pid") | ("rocpd_info_thread", "tid") => return None,
        (_, "nid") => "rocpd_info_node",
        (_, "pid") => "rocpd_info_process",
        (_, "tid") => "rocpd_info_thread",
        (_, "agent_id" | "dst_agent_id" | "src_agent_id") => "rocpd_info_agent",
        (_, "queue_id") => "rocpd_info_queue",
        (_, "stream_id") => "rocpd_info_stream",
        (_, "pmc_id") => "rocpd_info_pmc",
        (_, "code_object_id") => "rocpd_info_code_object",
        (_, "kernel_id") => "rocpd_info_kernel_symbol",
        (_, "track_id") => "rocpd_track",
        (_, "event_id") => "rocpd_event",
        (_, "name_id" | "category_id" | "region_name_id") => "rocpd_string",
        _ => return None,
    })
}

/// The table that an id inside JSON refers to.
fn json_target(table: &str, column: &str, key: &str) -> Option<&'static str> {
    Some(match (table, column, key) {
        ("rocpd_arg", "extdata", "stream_id") => "rocpd_info_stream",
        ("rocpd_info_kernel_symbol", "extdata", "kernel_id") => "rocpd_info_kernel_symbol",
        ("rocpd_info_kernel_symbol" | "rocpd_info_code_object", "extdata", "code_object_id")
        | ("rocpd_event", "line_info", "code_object_id") => "rocpd_info_code_object",
        _ => return None,
    })
}

/// Columns that a merge makes up.
fn is_made_up(table: &str, column: &str) -> bool {
    match table {
        "rocpd_info_node" => column == "hash",
        "rocpd_info_process" => {
            matches!(column, "init" | "fini" | "start" | "end" | "environment" | "extdata")
        }
        _ => false,
    }
}

/// The name of a row that an input recorded, where a merge put the rank in front of it.
fn recorded_name(row: &BTreeMap<String, Value>) -> Option<Value> {
    let Some(Value::Text(extdata)) = row.get("extdata") else { return None };
    let extdata: JsonCell = serde_json::from_str(extdata).ok()?;
    Some(match extdata.get("rpd")?.get("recorded_name")? {
        JsonCell::String(name) => Value::Text(name.clone()),
        _ => Value::Null,
    })
}

/// The content of all rows.
pub fn content(tables: &ContentTables) -> DatabaseContent {
    let reader = Reader::new(tables);
    let mut content = DatabaseContent::new();
    for (table, rows) in &tables.tables {
        let mut all: Vec<String> = match table.as_str() {
            "rocpd_event" => rows.keys().map(|id| reader.event(*id)).collect(),
            _ => rows.keys().map(|id| reader.row(table, *id, Depth::Whole)).collect(),
        };
        all.sort();
        content.insert(table.clone(), all);
    }
    content
}

/// How much of a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Depth {
    /// Without ids in JSON: rows name themselves there.
    WithoutJson,
    /// Without the event, which is known by its owners.
    WithoutEvent,
    Whole,
}

struct Reader<'a> {
    tables: &'a ContentTables,
    /// Content of each event without stack ids, with that of its owners.
    events: HashMap<i64, String>,
    /// Per stack id, a word for everything that has it.
    stacks: HashMap<i64, String>,
    rows: RefCell<HashMap<(String, i64, Depth), Rc<str>>>,
}

impl<'a> Reader<'a> {
    fn new(tables: &'a ContentTables) -> Reader<'a> {
        let mut reader =
            Reader { tables, events: HashMap::new(), stacks: HashMap::new(), rows: RefCell::default() };
        let mut owners: HashMap<i64, Vec<String>> = HashMap::new();
        for table in OWNERS {
            for (id, row) in tables.of(table) {
                if let Some(Value::Integer(event)) = row.get("event_id") {
                    let owner = format!("{table} {}", reader.row(table, *id, Depth::WithoutEvent));
                    owners.entry(*event).or_default().push(owner);
                }
            }
        }
        let mut stacks: HashMap<i64, Vec<String>> = HashMap::new();
        let mut events = HashMap::new();
        for (id, row) in tables.of("rocpd_event") {
            let mut owned_by = owners.remove(id).unwrap_or_default();
            owned_by.sort();
            let own = reader.row("rocpd_event", *id, Depth::WithoutEvent);
            let event = format!("{own} of [{}]", owned_by.join("; "));
            if let Some(Value::Integer(stack)) = row.get("stack_id") {
                stacks.entry(*stack).or_default().push(event.clone());
            }
            events.insert(*id, event);
        }
        reader.events = events;
        for (stack, mut members) in stacks {
            members.sort();
            reader.stacks.insert(stack, format!("{}:{}", members.len(), digest(&members.join("|"))));
        }
        reader
    }

    fn event(&self, id: i64) -> String {
        let Some(row) = self.tables.of("rocpd_event").get(&id) else {
            return "an event that is not there".into();
        };
        let stack = |column: &str| match row.get(column) {
            None | Some(Value::Null) => "null".to_owned(),
            Some(Value::Integer(0)) => "0".to_owned(),
            Some(Value::Integer(v)) => {
                self.stacks.get(v).cloned().unwrap_or_else(|| "a stack id of no event".into())
            }
            Some(other) => format!("{other:?}"),
        };
        let known = self.events.get(&id).map_or("", String::as_str);
        format!("{known} stack {} parent {}", stack("stack_id"), stack("parent_stack_id"))
    }

    fn row(&self, table: &str, id: i64, depth: Depth) -> String {
        let key = (table.to_owned(), id, depth);
        if let Some(known) = self.rows.borrow().get(&key) {
            return known.to_string();
        }
        let made = match self.tables.of(table).get(&id) {
            Some(row) => self.make(table, row, depth),
            None => format!("no row {id} of {table}"),
        };
        self.rows.borrow_mut().insert(key, made.as_str().into());
        made
    }

    fn make(&self, table: &str, row: &BTreeMap<String, Value>, depth: Depth) -> String {
        let native = self.is_native(table, row);
        let recorded_name = recorded_name(row);
        let mut out = String::new();
        for (column, value) in row {
            let value = recorded_name.as_ref().filter(|_| column == "name").unwrap_or(value);
            let unnamed = match column.as_str() {
                "stack_id" | "parent_stack_id" => true,
                "event_id" => depth == Depth::WithoutEvent,
                "correlation_id" => native,
                "type" => native && table == "rocpd_arg",
                _ => is_made_up(table, column),
            };
            if !unnamed {
                out += &format!("{column}={} ", self.value(table, column, value, depth));
            }
        }
        out
    }

    /// Whether an event, or the event of a row, was recorded by the collector itself.
    fn is_native(&self, table: &str, row: &BTreeMap<String, Value>) -> bool {
        let events = self.tables.of("rocpd_event");
        let event = match (table, row.get("event_id")) {
            ("rocpd_event", _) => Some(row),
            (_, Some(Value::Integer(id))) => events.get(id),
            _ => None,
        };
        let category = event.and_then(|event| event.get("category_id"));
        let Some(Value::Integer(category)) = category else { return false };
        let name = self.tables.of("rocpd_string").get(category).and_then(|row| row.get("string"));
        matches!(name, Some(Value::Text(name)) if NATIVE.contains(&name.as_str()))
    }

    fn value(&self, table: &str, column: &str, value: &Value, depth: Depth) -> String {
        match (value, target(table, column)) {
            (Value::Integer(id), Some("rocpd_event")) => format!("<{}>", digest(&self.event(*id))),
            (Value::Integer(id), Some("rocpd_string")) => self.string(*id),
            (Value::Integer(id), Some(other)) => self.reference(other, *id, depth),
            (Value::Integer(v), None) => v.to_string(),
            (Value::Text(text), _) if column == "machine_id" => format!("{text:.32}"),
            (Value::Text(text), _) if is_json(column) => self.json(table, column, text, depth),
            (Value::Text(text), _) => quoted(text),
            (other, _) => format!("{other:?}"),
        }
    }

    fn string(&self, id: i64) -> String {
        match self.tables.of("rocpd_string").get(&id).and_then(|row| row.get("string")) {
            Some(Value::Text(text)) => quoted(text),
            other => format!("string {id} is {other:?}"),
        }
    }

    /// People read the first words, the digest stands for the rest.
    fn reference(&self, table: &str, id: i64, depth: Depth) -> String {
        let whole =
            self.row(table, id, if depth == Depth::Whole { Depth::Whole } else { Depth::WithoutJson });
        match table {
            "rocpd_info_thread" => {
                let tid = self.tables.of(table).get(&id).and_then(|row| row.get("tid"));
                format!("<tid {tid:?} {}>", digest(&whole))
            }
            _ => format!("<{}>", digest(&whole)),
        }
    }

    fn json(&self, table: &str, column: &str, text: &str, depth: Depth) -> String {
        let Ok(mut json) = serde_json::from_str::<JsonCell>(text) else { return quoted(text) };
        // Provenance is the merger's own.
        if let JsonCell::Object(entries) = &mut json {
            entries.remove("rpd");
        }
        self.replace_ids(table, column, &mut json, depth);
        quoted(&json.to_string())
    }

    fn replace_ids(&self, table: &str, column: &str, json: &mut JsonCell, depth: Depth) {
        let JsonCell::Object(entries) = json else { return };
        for (key, value) in entries {
            match (json_target(table, column, key), value.as_i64()) {
                (Some(_), Some(_)) if depth == Depth::WithoutJson => *value = JsonCell::Null,
                (Some(to), Some(id)) => {
                    *value = JsonCell::String(digest(&self.row(to, id, Depth::WithoutJson)))
                }
                _ => self.replace_ids(table, column, value, depth),
            }
        }
    }
}

fn is_json(column: &str) -> bool {
    matches!(column, "extdata" | "call_stack" | "line_info" | "environment")
}

fn digest(text: &str) -> String {
    format!("{:016x}", XxHash3_64::oneshot(text.as_bytes()))
}

/// Long texts by their beginning and a digest.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((cut, _)) => format!("{:?}..{}", &text[..cut], digest(text)),
        None => format!("{text:?}"),
    }
}

/// Number of rows of each table, for messages.
impl ContentTables {
    /// Number of rows of a table.
    pub fn rows(&self, table: &str) -> usize {
        self.tables.get(table).map_or(0, RowsById::len)
    }
}
