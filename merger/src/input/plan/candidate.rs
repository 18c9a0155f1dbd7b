//! Properties that rank 0 reads from an input while it plans the merge.

use crate::input::plan::PreviousMerge;
use crate::input::plan::running::running_until;
use crate::input::{HostClocks, shard_source_id};
use rpd_foreign::Format;
use rpd_rocpd::Guid;
use rpd_rocpd::read::{Database, ReadError, StoredTableSet, Wanted};
use rpd_rocpd::schema::{version_of, with_words_of};
use rpd_shard::identity::{boot_of_machine, unnamed_node};
use rpd_shard::model::{Schema, rocpd};
use rpd_shard::record::{Clock, Process, SYSTEM_SOURCE, Selection};
use rpd_shard::{OpenError, Shard};
use std::error::Error;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Maximum job size that is believed; a recorded size of more than a million ranks is damage.
const MAX_JOB_SIZE: u32 = 1 << 20;
/// Maximum number of pieces that are searched for a row. An empty table has at most one piece.
const MAX_SEARCHED_PIECES: usize = 4_096;

/// Properties that rank 0 keeps of an input. The file itself is closed again, because a job can have thousands of
/// inputs.
pub(super) struct InputCandidate {
    pub(super) path: PathBuf,
    pub(super) format: Format,
    /// Run id that the input records, if any.
    pub(super) run_id: Option<String>,
    pub(super) bytes: u64,
    pub(super) complete: bool,
    /// Wall time up to which an unfinished shard is complete, ns since 1970.
    pub(super) running_until: Option<i64>,
    pub(super) order: InputOrder,
    pub(super) ranks: Vec<u32>,
    pub(super) size: Option<u32>,
    /// The command of a shard that describes no traced process.
    pub(super) command: Option<Process>,
    /// Rank of the collector.
    pub(super) collector: Option<u32>,
    pub(super) selection: Option<Selection>,
    /// Guid of each table set of a database.
    pub(super) guids: Vec<String>,
    /// Positions of the table sets that are merged.
    pub(super) table_sets: Vec<usize>,
    /// Guid of each process, as a merge stores it.
    pub(super) members: Vec<String>,
    /// Version and tables of each table set, if they differ from those of shards.
    pub(super) schemas: Vec<([u32; 3], Schema)>,
    /// Whether `rpd-merge` wrote the database.
    pub(super) is_merged: bool,
    /// Clock metadata of the previous merge that wrote the input.
    pub(super) previous_merge: Option<PreviousMerge>,
    /// Nonempty loss ledgers of previous merges, oldest first.
    pub(super) previous_losses: Vec<String>,
    /// Metadata that is defined neither by RocPD nor by `rpd-merge`: tag and value.
    pub(super) tags: Vec<(String, String)>,
    /// Clocks of the input's node.
    pub(super) host_clocks: HostClocks,
}

/// Sort key of a process: restart, worker, first seen, boot id or guid, pid, start.
type ProcessOrder = (u32, bool, i64, String, i64, u64);

/// Merge order of inputs. It depends on file names only for inputs without any process or command.
#[derive(PartialEq, Eq, PartialOrd, Ord, Clone)]
pub(super) struct InputOrder {
    pub(super) rank: u32,
    /// Sort key of each process.
    pub(super) processes: Vec<ProcessOrder>,
    /// Sort key of the command, for a shard that describes no traced process.
    pub(super) command: Option<ProcessOrder>,
    pub(super) path: Option<PathBuf>,
}

/// Why an input cannot be merged.
pub(super) enum RefusedInput {
    /// The problem is in this file; the other inputs can be merged without it.
    LeaveOut(String),
    /// The problem would affect any input, for example a full table of open files or an I/O error of the file system.
    All(String),
}

impl InputCandidate {
    /// Reads the description of a shard. `is_job_over` is as for [`running_until`].
    pub(super) fn of_shard(path: &Path, is_job_over: bool) -> Result<InputCandidate, RefusedInput> {
        let shard = Shard::open(path).map_err(refused_shard)?;
        let all = || shard.processes.values();
        let mut ranks: Vec<u32> = all().filter_map(|p| p.rank).chain(shard.identity.rank).collect();
        ranks.sort_unstable();
        // System counters of a node are not the work of a rank, so they do not determine the order.
        let mut processes: Vec<_> = all().filter(|p| p.source != SYSTEM_SOURCE).map(process_order).collect();
        processes.sort();
        let command = shard.command.as_deref().filter(|_| processes.is_empty()).cloned();
        let path = (processes.is_empty() && command.is_none()).then(|| path.to_owned());
        let mut host_clocks = HostClocks::default();
        host_clocks.add(&shard);
        // A collector can write a shard from a database of any RocPD version.
        let version = version_of(shard.schema());
        let carried =
            (!same_tables(shard.schema())).then(|| (version, with_words_of(version, shard.schema())));
        Ok(InputCandidate {
            path: shard.path().to_owned(),
            format: Format::Shard,
            // A translated foreign file has no run id; it belongs to whatever run it is merged with.
            run_id: Some(shard.identity.run_id.clone()).filter(|id| !id.is_empty()),
            bytes: shard.bytes(),
            complete: shard.complete(),
            running_until: running_until(&shard, is_job_over),
            // Shards without any rank come last.
            order: InputOrder {
                rank: ranks.first().copied().unwrap_or(u32::MAX),
                processes,
                command: command.as_ref().map(process_order),
                path,
            },
            ranks,
            collector: shard.identity.rank,
            selection: shard.selection.clone(),
            size: all().filter_map(|p| p.size).chain(shard.identity.size).max().map(|s| s.min(MAX_JOB_SIZE)),
            guids: Vec::new(),
            table_sets: Vec::new(),
            members: all().chain(&command).map(|p| member(shard_source_id(&shard, p))).collect(),
            command,
            schemas: carried.into_iter().collect(),
            is_merged: false,
            previous_merge: None,
            previous_losses: Vec::new(),
            tags: Vec::new(),
            host_clocks,
        })
    }

    /// Reads the description of a RocPD database.
    pub(super) fn of_database(path: &Path) -> Result<InputCandidate, RefusedInput> {
        let database = Database::open(path).map_err(refused_database)?;
        let table_sets = database.table_sets();
        if !has_rows(&database) {
            let why = "its tables have no rows: the program was killed before its profiler wrote them";
            return Err(RefusedInput::LeaveOut(format!("{}: {why}", path.display())));
        }
        let processes = || table_sets.iter().flat_map(|s| s.processes.iter().map(move |p| (s, p)));
        let mut ranks: Vec<u32> = processes().filter_map(|(_, p)| p.rank).collect();
        ranks.sort_unstable();
        let place = |(set, p): (&StoredTableSet, &rpd_rocpd::read::ProcessFacts)| {
            (0, false, p.start.unwrap_or(0), set.guid.clone(), p.pid, 0)
        };
        let mut places: Vec<_> = processes().map(place).collect();
        places.sort();
        let merged: Vec<_> = table_sets.iter().filter(|set| set.is_merged()).collect();
        let mut host_clocks = HostClocks::default();
        if let Some(process) = nameless(table_sets).filter(|_| merged.is_empty()) {
            host_clocks.add_nameless(path, process);
        }
        let is_unusual = |set: &&StoredTableSet| set.version != [3, 0, 0] || !same_tables(&set.schema);
        Ok(InputCandidate {
            path: path.to_owned(),
            format: Format::RocPd,
            run_id: merged.iter().find_map(|s| s.tags.get("rpd.run_id").filter(|id| !id.is_empty()).cloned()),
            bytes: database.bytes(),
            complete: true,
            running_until: None,
            order: InputOrder {
                rank: ranks.first().copied().unwrap_or(u32::MAX),
                path: places.is_empty().then(|| path.to_owned()),
                processes: places,
                command: None,
            },
            ranks,
            command: None,
            collector: None,
            selection: None,
            size: processes().filter_map(|(_, p)| p.size).max().map(|s| s.min(MAX_JOB_SIZE)),
            guids: table_sets.iter().map(|set| set.guid.clone()).collect(),
            table_sets: (0..table_sets.len()).collect(),
            members: members(&database),
            schemas: table_sets.iter().filter(is_unusual).map(|s| (s.version, s.schema.clone())).collect(),
            is_merged: !merged.is_empty(),
            previous_merge: PreviousMerge::of(path.to_owned(), &merged),
            previous_losses: merged.iter().flat_map(|set| previous_losses(set)).collect(),
            tags: table_sets.iter().flat_map(foreign_tags).collect(),
            host_clocks,
        })
    }
}

fn process_order(p: &Process) -> ProcessOrder {
    (p.restart, p.worker, p.first_seen, p.domain.boot_id.clone(), p.pid.into(), p.start_ticks)
}

/// Returns a process of a database that does not identify its node.
fn nameless(table_sets: &[StoredTableSet]) -> Option<Process> {
    let is_nameless = |set: &&StoredTableSet| {
        let node = set.nodes.first().map(|(_, node)| node);
        set.nodes.len() <= 1 && node.is_none_or(|node| boot_of_machine(node).is_none())
    };
    let facts = table_sets.iter().find(is_nameless)?.processes.first()?;
    let (pid, start) = (i32::try_from(facts.pid).unwrap_or(-1), facts.start.unwrap_or(0));
    let node = unnamed_node(0, &[(pid, start)]);
    let (rank, size) = (facts.rank, facts.size);
    Some(Process { rank, size, pid, first_seen: start, ..Process::of_file(node, Clock::Boottime) })
}

/// Returns the guid of a process of a shard.
fn member(id: u128) -> String {
    Guid::from_bits(id).to_string()
}

/// Returns the guids of a database's processes: those that a merge stored, otherwise those of the table sets.
fn members(database: &Database) -> Vec<String> {
    let mut members = Vec::new();
    for (i, set) in database.table_sets().iter().enumerate() {
        let noted = if set.is_merged() { noted_guids(database, i) } else { Vec::new() };
        match noted.is_empty() {
            true => members.push(set.guid.clone()),
            false => members.extend(noted),
        }
    }
    members
}

/// Returns the guids that a merge stored in `extdata` of the processes of a table set.
fn noted_guids(database: &Database, set: usize) -> Vec<String> {
    let Some(table) = database.table_sets()[set].position(rocpd::INFO_PROCESS) else { return Vec::new() };
    let pieces = &database.table_sets()[set].tables[table].pieces;
    let mut guids = Vec::new();
    for piece in pieces {
        database.each(set, table, piece, &mut |_, rows| {
            let Ok(rows) = rows else { return };
            let guid = |i| {
                let text = rows.column("extdata").get(i).text_lossy()?.into_owned();
                let noted: serde_json::Value = serde_json::from_str(&text).ok()?;
                Some(noted.pointer("/rpd/guid")?.as_str()?.to_owned())
            };
            guids.extend((0..rows.len).filter_map(guid));
        });
    }
    guids
}

/// Returns the loss ledgers of the merges that wrote a table set, oldest first.
fn previous_losses(set: &StoredTableSet) -> Vec<String> {
    let before = set.tags.get("rpd.former_losses").and_then(|text| serde_json::from_str(text).ok());
    let mut losses: Vec<String> = before.unwrap_or_default();
    losses.extend(set.tags.get("rpd.losses").filter(|text| *text != "[]").cloned());
    losses
}

/// Returns the metadata of a table set that is neither RocPD's nor `rpd-merge`'s: tag and value.
fn foreign_tags(set: &StoredTableSet) -> impl Iterator<Item = (String, String)> {
    let is_own = |tag: &str| tag.starts_with("rpd.") || tag.starts_with("schema_version");
    let is_foreign = move |tag: &str| !is_own(tag) && !matches!(tag, "uuid" | "guid");
    set.tags.clone().into_iter().filter(move |(tag, _)| is_foreign(tag))
}

/// Returns whether any table has a row. An empty table can have a piece.
fn has_rows(database: &Database) -> bool {
    let tables = database.table_sets().iter().enumerate().flat_map(|(i, set)| {
        let numbered = set.tables.iter().enumerate();
        numbered.flat_map(move |(j, table)| table.pieces.iter().map(move |piece| (i, j, piece)))
    });
    let mut pieces = tables.take(MAX_SEARCHED_PIECES);
    pieces.any(|(set, table, piece)| {
        // A piece that cannot be read counts as rows: it does not show that the table is empty.
        database.rows(set, table, piece, Wanted::Links).map_or(true, |rows| rows.len > 0)
    })
}

/// Returns whether a schema equals the built-in tables.
fn same_tables(schema: &Schema) -> bool {
    let builtin = Schema::builtin();
    schema.tables().len() == builtin.tables().len()
        && schema.tables().iter().all(|table| builtin.get(table.id) == Some(table))
}

fn refused_shard(error: OpenError) -> RefusedInput {
    let is_of_this_file = match &error {
        OpenError::NotAShard { .. } | OpenError::NoIdentity { .. } => true,
        OpenError::NewerVersion { .. } => false,
        OpenError::Io { source, .. } => is_of_one_file(source.kind()),
    };
    refused(error.to_string(), is_of_this_file)
}

fn refused_database(error: ReadError) -> RefusedInput {
    let is_of_this_file = match &error {
        ReadError::Io { source, .. } => is_of_one_file(source.kind()),
        _ => true,
    };
    let cause = error.source().map_or(String::new(), |source| format!(" ({source})"));
    refused(format!("{error}{cause}"), is_of_this_file)
}

fn is_of_one_file(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::InvalidInput
            | ErrorKind::StaleNetworkFileHandle
            | ErrorKind::UnexpectedEof
    )
}

fn refused(text: String, is_of_this_file: bool) -> RefusedInput {
    if is_of_this_file { RefusedInput::LeaveOut(text) } else { RefusedInput::All(text) }
}
