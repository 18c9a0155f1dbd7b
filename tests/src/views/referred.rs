//! Words about the rows of a database, by which they are known whatever their ids are.

use rusqlite::{Connection, Result};
use std::collections::HashMap;

/// Tables to which views refer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum ReferredTable {
    Node,
    Agent,
    Queue,
    Stream,
    CodeObject,
    KernelSymbol,
    Pmc,
    Event,
    Region,
}

/// The process of a row, by what the system calls it.
const OWNER: &str = "(SELECT coalesce(node.hostname, '') || ' ' || proc.pid FROM rocpd_info_process proc
     LEFT JOIN rocpd_info_node node ON node.id = proc.nid AND node.guid = proc.guid
    WHERE proc.id = x.pid AND proc.guid = x.guid)";

/// A queue or stream by its process and the name that an input recorded.
const RECORDED: &str = "OWNER || ' ' || coalesce(json_extract(extdata, '$.rpd.recorded_name'), name, '')";

/// Guid, id and words of the rows of each table but events.
const WORDS: [(ReferredTable, &str, &str); 8] = [
    (ReferredTable::Node, "rocpd_info_node", "coalesce(hostname, '') || ' ' || machine_id"),
    (ReferredTable::Agent, "rocpd_info_agent", "OWNER || ' agent ' || absolute_index || type || ' ' || name"),
    (ReferredTable::Queue, "rocpd_info_queue", RECORDED),
    (ReferredTable::Stream, "rocpd_info_stream", RECORDED),
    (
        ReferredTable::CodeObject,
        "rocpd_info_code_object",
        "OWNER || ' ' || coalesce(uri, '') || ' at ' || coalesce(load_base, '')",
    ),
    (
        ReferredTable::KernelSymbol,
        "rocpd_info_kernel_symbol",
        "OWNER || ' ' || coalesce(kernel_name, '') || ' at ' || coalesce(kernel_object, '')",
    ),
    (
        ReferredTable::Pmc,
        "rocpd_info_pmc",
        "OWNER || ' ' || name || ' of ' || coalesce((SELECT agent.absolute_index FROM rocpd_info_agent agent
              WHERE agent.id = x.agent_id AND agent.guid = x.guid), '')",
    ),
    (
        ReferredTable::Region,
        "rocpd_region",
        "OWNER || ' ' || coalesce((SELECT label.string FROM rocpd_string label
              WHERE label.id = x.name_id AND label.guid = x.guid), '') || ' ' || start || ' ' || \"end\"",
    ),
];

/// Tables with rows that own an event, and when they begin.
const OWNERS: [(&str, &str); 5] = [
    ("rocpd_region", "OWNER || ' ' || start || ' ' || \"end\""),
    ("rocpd_kernel_dispatch", "OWNER || ' ' || start || ' ' || \"end\" || ' ' || dispatch_id"),
    ("rocpd_memory_copy", "OWNER || ' ' || start || ' ' || \"end\" || ' ' || size"),
    ("rocpd_memory_allocate", "OWNER || ' ' || start || ' ' || \"end\" || ' ' || size"),
    ("rocpd_sample", "timestamp"),
];

/// Words by guid and id.
type ById = HashMap<(String, i64), String>;

/// Words about all rows of a database.
pub(super) struct RowDescriptions {
    rows: HashMap<ReferredTable, ById>,
    stacks: ById,
}

impl RowDescriptions {
    pub(super) fn of(database: &Connection) -> Result<RowDescriptions> {
        let mut rows = HashMap::new();
        for (table, name, words) in WORDS {
            let mut by_id = ById::new();
            each(database, &format!("SELECT guid, id, {words} FROM {name} x"), |key, words| {
                by_id.insert(key, words);
            })?;
            rows.insert(table, by_id);
        }
        let mut owners: HashMap<(String, i64), Vec<String>> = HashMap::new();
        for (table, words) in OWNERS {
            let sql = format!("SELECT guid, event_id, '{table} ' || ({words}) FROM {table} x WHERE event_id");
            each(database, &sql, |key, words| owners.entry(key).or_default().push(words))?;
        }
        let mut events = ById::new();
        let sql = "SELECT guid, id, coalesce((SELECT category.string FROM rocpd_string category
               WHERE category.id = x.category_id AND category.guid = x.guid), '') FROM rocpd_event x";
        each(database, sql, |key, category| {
            let mut owners = owners.remove(&key).unwrap_or_default();
            owners.sort();
            events.insert(key, format!("{category} of [{}]", owners.join(", ")));
        })?;
        let mut members: HashMap<(String, i64), Vec<String>> = HashMap::new();
        let mut query = database.prepare("SELECT guid, stack_id, id FROM rocpd_event WHERE stack_id != 0")?;
        let mut found = query.query([])?;
        while let Some(row) = found.next()? {
            let (guid, stack, id): (String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let event = events.get(&(guid.clone(), id)).cloned().unwrap_or_default();
            members.entry((guid, stack)).or_default().push(event);
        }
        let together = |mut members: Vec<String>| {
            members.sort();
            members.join(" and ")
        };
        let stacks = members.into_iter().map(|(stack, members)| (stack, together(members))).collect();
        rows.insert(ReferredTable::Event, events);
        Ok(RowDescriptions { rows, stacks })
    }

    /// Words about a row.
    pub(super) fn row(&self, table: ReferredTable, guid: &str, id: i64) -> String {
        let found = self.rows.get(&table).and_then(|by_id| by_id.get(&(guid.to_owned(), id)));
        found.map_or_else(|| format!("no row of {table:?}"), |words| format!("<{words}>"))
    }

    /// Words about all that has a stack id.
    pub(super) fn stack(&self, guid: &str, stack: i64) -> String {
        match self.stacks.get(&(guid.to_owned(), stack)) {
            _ if stack == 0 => "0".into(),
            Some(words) => format!("<{words}>"),
            None => "a stack id of no event".into(),
        }
    }
}

/// Takes guid, id and words from each row of a query in which `OWNER` stands for the process.
fn each(database: &Connection, sql: &str, mut take: impl FnMut((String, i64), String)) -> Result<()> {
    let mut query = database.prepare(&sql.replace("OWNER", &format!("coalesce({OWNER}, '')")))?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let words = match row.get_ref(2)? {
            rusqlite::types::ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
            rusqlite::types::ValueRef::Integer(number) => number.to_string(),
            other => format!("{other:?}"),
        };
        take((row.get(0)?, row.get(1)?), words);
    }
    Ok(())
}
