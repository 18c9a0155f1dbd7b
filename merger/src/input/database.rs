//! Survey of a RocPD database, as `survey.rs` does it for shards.

use super::collectives::of_space;
use super::expand::BuiltinString;
use super::home::HostClocks;
use super::home::MERGED_TIME_NAMESPACE;
use super::input_survey::{InputSurvey, hashes_of_words, shorten};
use super::opened::{InputTables, OpenDatabase, OpenInput, StringPieces};
use super::placeholders::reserve_placeholders;
use super::schema::JobSchema;
use super::source::{InputSource, KeySpace, RowRoom, SourcePiece, SourceTracks, StackSpace, join};
use crate::strings::{StringHash, hash};
use rayon::prelude::*;
use rpd_collectives::{CallSample, RegionNames};
use rpd_rocpd::read::{Database, ProcessFacts, ReadError, Space, TakeRows, Wanted};
use rpd_run::is_merged_set;
use rpd_shard::identity::{boot_of_machine, unknown_boot, unnamed_node};
use rpd_shard::model::{Cells, Kind, Local, Rows, Schema, Table, TableId, Value, rocpd};
use rpd_shard::record::{Clock, ClockDomain, Loss, LossCause, Node, Process};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::Arc;

/// Pieces that are read at the same time, before their facts are combined.
const PIECES_AT_ONCE: usize = 64;
/// Maximum number of warnings per database; further damage is only counted.
const MAX_WARNINGS: usize = 20;

/// Surveys the table sets of a database, with the pieces of each table in parallel.
pub(super) fn survey_database(
    database: Database,
    taken: &[usize],
    job: &JobSchema,
    homes: &HostClocks,
    sample: &CallSample,
) -> InputSurvey {
    let mut survey = InputSurvey::default();
    for line in database.damage() {
        let path = database.path().display().to_string();
        survey.warnings.push(if line.contains(&path) { line.clone() } else { format!("{path}: {line}") });
        survey.lose(None, LossCause::Truncated, None);
    }
    let mut string_tables = Vec::new();
    for space in taken {
        let Some(found) = database.spaces().get(*space) else { continue };
        let adopted: InputTables = job.adopt(&found.schema);
        let reader = Reader { database: &database, space: *space, found, tables: &adopted, room: &job.rows };
        let mut source = reader.survey(job, sample, &mut string_tables, &mut survey);
        if let [(_, node)] = &mut source.nodes[..]
            && homes.find_node(&mut source.process)
        {
            node.clone_from(&source.process.node);
        }
        survey.sources.push(source);
    }
    // The same damage can be found when a file is opened and again when its rows are read.
    let mut told = BTreeSet::new();
    survey.warnings.retain(|line| told.insert(line.clone()));
    shorten(&mut survey.warnings, MAX_WARNINGS, database.path());
    survey.sources.sort_by_cached_key(InputSource::order);
    database.release();
    survey.input = OpenInput::Database(OpenDatabase { database, strings: string_tables });
    survey
}

struct Reader<'a> {
    database: &'a Database,
    space: usize,
    found: &'a Space,
    tables: &'a InputTables,
    room: &'a RowRoom,
}

/// Strings of a table set.
struct Texts {
    keys: KeySpace,
    /// Position and hash of each string.
    hashes: Vec<(u32, StringHash)>,
    /// Pieces that contain the strings and can be read.
    readable: StringPieces,
    /// Names of regions that are collectives and messages.
    names: RegionNames,
}

/// Facts of one piece.
#[derive(Default)]
struct PieceFacts {
    /// Runs of consecutive keys.
    runs: Vec<(i64, i64)>,
    rows: u64,
    /// Tables that lack a row to which a mandatory reference points.
    missing: BTreeSet<TableId>,
    lost_strings: bool,
    /// Smallest and largest stack id.
    stacks: Option<(i64, i64)>,
}

impl Reader<'_> {
    fn survey(
        &self,
        job: &JobSchema,
        sample: &CallSample,
        string_tables: &mut Vec<StringPieces>,
        survey: &mut InputSurvey,
    ) -> InputSource {
        let string_table = string_tables.len();
        let path = self.database.path().display();
        survey.warnings.extend(self.found.warnings.iter().map(|line| format!("{path}: {line}")));
        for left_out in &self.found.left_out {
            survey.warnings.push(format!("{path}: {left_out}"));
            match Schema::builtin().by_name(&left_out.table) {
                Some(known) => survey.lose(Some(known.id), LossCause::DamagedBlock, left_out.rows),
                None => survey.lose(None, LossCause::UnknownTable, left_out.rows),
            }
        }
        let is_missing = |table: &&Arc<Table>| {
            let is_left_out = self.found.left_out.iter().any(|left_out| left_out.table == table.name);
            self.found.position(table.id).is_none() && !is_left_out
        };
        for missing in Schema::builtin().rocpd_tables().filter(is_missing) {
            survey.warnings.push(format!("{path}: table {} is missing", missing.name));
            survey.lose(Some(missing.id), LossCause::DamagedBlock, None);
        }
        let Texts { keys: strings, mut hashes, readable, names } = self.strings(survey);
        string_tables.push(readable);
        let nodes = self.nodes();
        let mut spaces: BTreeMap<TableId, KeySpace> = BTreeMap::new();
        let mut pieces = Vec::new();
        let mut words = BTreeSet::new();
        let mut missing = BTreeSet::new();
        let mut stacks = None;
        for (place, table) in self.found.tables.iter().enumerate() {
            let Some(adopted) = self.tables.get(&table.table.id) else { continue };
            if matches!(adopted.id, rocpd::STRING | rocpd::INFO_NODE) {
                continue;
            }
            let mut space = KeySpace::default();
            let known = Known { strings: &strings, nodes: &nodes, spaces: &spaces };
            for (piece, facts) in self.table(place, adopted, &known, survey) {
                let first = facts.runs.first().map_or(0, |run| run.0);
                if space.stored.last().is_some_and(|last| first < last.next) {
                    let path = self.database.path().display();
                    survey
                        .warnings
                        .push(format!("{path}: ids of {} from {first} on are out of order", adopted.name));
                    survey.lose(Some(adopted.id), LossCause::DamagedBlock, Some(facts.rows));
                    continue;
                }
                facts.runs.iter().for_each(|(first, next)| space.add_keys(*first, *next));
                *survey.rows_read.entry(adopted.id).or_default() += facts.rows;
                missing.extend(facts.missing);
                stacks = join(stacks, facts.stacks);
                if facts.lost_strings {
                    words.insert(BuiltinString::Lost);
                }
                pieces.push(SourcePiece::Rows { space: self.space, table: place, piece });
            }
            space.expanded = (space.next, space.next);
            if !space.stored.is_empty() {
                spaces.insert(adopted.id, space);
            }
        }
        reserve_placeholders(&mut spaces, missing, job);
        if spaces.values().any(|space| space.placeholder.is_some()) {
            words.insert(BuiltinString::Lost);
        }
        hashes.extend(hashes_of_words(&words));
        survey.hashes.push(hashes);
        let stacks = StackSpace::of(stacks, &job.stacks, self.rows_with_stacks(&pieces));
        pieces.push(SourcePiece::Tail);
        let process = main_process(self.found, &nodes);
        let tables = self.tables.clone();
        let collectives = of_space(self.database, self.found, &pieces, &names, &process, sample);
        let (spaces, pieces, tracks) = (spaces.into(), pieces.into(), SourceTracks::new());
        InputSource { process, nodes, spaces, stacks, pieces, tracks, string_table, tables, collectives }
    }

    /// Reads the strings.
    fn strings(&self, survey: &mut InputSurvey) -> Texts {
        let mut space = KeySpace::default();
        let mut hashes = Vec::new();
        let mut names = RegionNames::default();
        let mut readable = StringPieces { space: self.space, table: 0, pieces: Vec::new() };
        let Some(place) = self.found.position(rocpd::STRING) else {
            return Texts { keys: space, hashes, readable, names };
        };
        readable.table = place;
        for piece in &self.found.tables[place].pieces {
            self.each_string(place, piece, &mut |piece, rows| {
                let rows = match rows {
                    Ok(rows) => rows,
                    Err(error) => return survey.lose_to(rocpd::STRING, &error, true),
                };
                readable.pieces.push(piece.clone());
                rows.keys.runs(rows.len).iter().for_each(|(first, next)| space.add_keys(*first, *next));
                let texts = rows.column("string");
                hashes
                    .extend((hashes.len() as u32..).zip((0..rows.len).map(|i| hash(text_of(texts.get(i))))));
                (0..rows.len).for_each(|i| names.add(rows.keys.get(i), text_of(texts.get(i))));
                *survey.rows_read.entry(rocpd::STRING).or_default() += rows.len as u64;
            });
        }
        Texts { keys: space, hashes, readable, names }
    }

    /// Passes the strings of a piece to `take`; page by page if the piece contains the largest possible id.
    fn each_string(&self, place: usize, piece: &rpd_rocpd::read::Piece, take: &mut TakeRows<'_>) {
        let name = &self.found.tables[place].table.name;
        self.database.each(self.space, place, piece, &mut |piece, rows| {
            let checked = rows.and_then(|rows| self.ends_before_the_last_id(name, &rows).map(|()| rows));
            match checked {
                Err(ReadError::LastId { .. }) if piece.is_divisible() => {
                    piece.split().iter().for_each(|part| self.each_string(place, part, take));
                }
                rows => take(piece, rows),
            }
        });
    }

    /// Returns the nodes by key; a placeholder if the nodes are lost.
    fn nodes(&self) -> Vec<(i64, Node)> {
        if self.found.nodes.is_empty() {
            let boot_id = unknown_boot(&self.found.guid);
            let hostname = BuiltinString::Lost.text().to_owned();
            return vec![(
                i64::MIN,
                Node { machine_id: boot_id.clone(), boot_id, hostname, ..Node::default() },
            )];
        }
        let node = |(number, (key, node)): (usize, &(i64, Node))| {
            let mut node = node.clone();
            node.boot_id = match boot_of_machine(&node) {
                Some(boot_id) => boot_id,
                // All table sets of a merge have the same nodes.
                None if is_merged_set(self.found) => unknown_boot(""),
                None => {
                    let Node { machine_id, boot_id, hostname, .. } =
                        unnamed_node(number as i64, &self.processes());
                    (node.machine_id, node.hostname) = (machine_id, hostname);
                    boot_id
                }
            };
            (*key, node)
        };
        self.found.nodes.iter().enumerate().map(node).collect()
    }

    /// Returns pid and first time of each process.
    fn processes(&self) -> Vec<(i32, i64)> {
        let seen = |p: &ProcessFacts| (i32::try_from(p.pid).unwrap_or(-1), p.start.unwrap_or(0));
        self.found.processes.iter().map(seen).collect()
    }

    /// Returns the readable pieces of a table with their facts. Records the rows that cannot be read as losses.
    fn table(
        &self,
        place: usize,
        table: &Arc<Table>,
        known: &Known<'_>,
        survey: &mut InputSurvey,
    ) -> Vec<(rpd_rocpd::read::Piece, PieceFacts)> {
        let read = |piece: &rpd_rocpd::read::Piece| {
            let rows = self.database.rows(self.space, place, piece, Wanted::Links)?;
            self.ends_before_the_last_id(&table.name, &rows)?;
            Ok(known.facts(table, &rows))
        };
        let mut good = Vec::new();
        for some in self.found.tables[place].pieces.chunks(PIECES_AT_ONCE) {
            let told = some.par_iter().map(|piece| self.in_parts(place, piece.clone(), &read));
            let told: Vec<Vec<_>> = told.collect();
            for (piece, told) in told.into_iter().flatten() {
                match told {
                    Ok(facts) if facts.rows == 0 => {}
                    Ok(facts) => good.push((piece, facts)),
                    // Reads page by page, so that a damaged page costs only its own rows.
                    Err(error) if piece.is_divisible() => {
                        // The parts report this error with the number of rows that it costs.
                        let is_told = !matches!(error, ReadError::LastId { .. });
                        if is_told {
                            survey.warn(&error);
                        }
                        for part in piece.split() {
                            match read(&part) {
                                Ok(facts) if facts.rows == 0 => {}
                                Ok(facts) => good.push((part, facts)),
                                Err(error) => survey.lose_to(table.id, &error, !is_told),
                            }
                        }
                    }
                    Err(error) => survey.lose_to(table.id, &error, true),
                }
            }
        }
        good
    }

    /// Fails if the last row has the largest possible id: half-open key runs need an id after it.
    fn ends_before_the_last_id(&self, table: &str, rows: &Rows<Local>) -> Result<(), ReadError> {
        if rows.len == 0 || rows.keys.get(rows.len - 1) != i64::MAX {
            return Ok(());
        }
        let (path, table) = (self.database.path().to_owned(), table.to_owned());
        Err(ReadError::LastId { path, table, rows: rows.len as u64 })
    }

    /// Returns the facts of a piece, or of its parts if its rows are too long to be read at once.
    fn in_parts(
        &self,
        place: usize,
        piece: rpd_rocpd::read::Piece,
        read: &(impl Fn(&rpd_rocpd::read::Piece) -> Result<PieceFacts, ReadError> + Sync),
    ) -> Vec<(rpd_rocpd::read::Piece, Result<PieceFacts, ReadError>)> {
        // The merge rejects rows that exceed the memory for a row, so such a row is not read here. A row longer than
        // the file is damaged.
        if piece.bytes <= self.database.bytes() && !self.room.has(piece.bytes) {
            return Vec::new();
        }
        let told = read(&piece);
        if matches!(told, Err(ReadError::TooLarge { .. }))
            && let Ok(parts) = self.database.smaller(self.space, place, &piece)
            && parts.first() != Some(&piece)
        {
            return parts.into_iter().flat_map(|part| self.in_parts(place, part, read)).collect();
        }
        vec![(piece, told)]
    }

    /// Reads the rows of all tables with stack ids again.
    fn rows_with_stacks(&self, pieces: &[SourcePiece]) -> impl Iterator<Item = Rows<Local>> {
        pieces.iter().filter_map(|piece| {
            let SourcePiece::Rows { space, table, piece } = piece else { return None };
            let has_stacks = self.found.tables[*table].table.columns.iter().any(|c| c.kind == Kind::Stack);
            has_stacks.then(|| self.database.rows(*space, *table, piece, Wanted::Links).ok())?
        })
    }
}

/// Keys to which references can point. Tables are surveyed after those that they refer to.
struct Known<'a> {
    strings: &'a KeySpace,
    nodes: &'a [(i64, Node)],
    spaces: &'a BTreeMap<TableId, KeySpace>,
}

impl Known<'_> {
    fn facts(&self, table: &Table, rows: &Rows<Local>) -> PieceFacts {
        let mut facts =
            PieceFacts { runs: rows.keys.runs(rows.len), rows: rows.len as u64, ..PieceFacts::default() };
        for (column, cells) in table.columns.iter().zip(&rows.columns) {
            match column.kind {
                Kind::Ref(target) if column.sql.not_null => {
                    let space = self.spaces.get(&target);
                    let is_there = |key| match target {
                        rocpd::INFO_NODE => self.nodes.iter().any(|(node, _)| *node == key),
                        _ => space.is_some_and(|s| s.stored(key).is_some()),
                    };
                    // Adjacent rows mostly refer to the same row.
                    let mut last = None;
                    let is_missing = (0..rows.len).any(|i| {
                        let key = cells.int(i);
                        let again = last == Some(key) && key.is_some();
                        last = Some(key);
                        !again && !key.is_some_and(is_there)
                    });
                    if is_missing {
                        facts.missing.insert(target);
                    }
                }
                Kind::Stack => {
                    if let Cells::Int { values, nulls } = cells
                        && !nulls.any()
                    {
                        let low = values.iter().copied().min();
                        facts.stacks = join(facts.stacks, low.zip(values.iter().copied().max()));
                        continue;
                    }
                    for key in (0..rows.len).filter_map(|i| cells.get(i).stack_id()) {
                        facts.stacks = join(facts.stacks, Some((key, key)));
                    }
                }
                Kind::Str => {
                    facts.lost_strings |= (0..rows.len).any(|i| match cells.get(i) {
                        Value::Null => column.sql.not_null,
                        Value::Int(id) => self.strings.stored(id).is_none(),
                        _ => true,
                    });
                }
                _ => {}
            }
        }
        facts
    }
}

fn text_of(value: Value<'_>) -> &[u8] {
    match value {
        Value::Text(text) | Value::Blob(text) => text,
        _ => b"",
    }
}

/// Returns the process of the lowest rank, which determines the position of a table set in the merge order.
fn main_process(space: &Space, nodes: &[(i64, Node)]) -> Process {
    let main = space.processes.iter().min_by_key(|p| (p.rank.unwrap_or(u32::MAX), p.start, p.pid));
    let facts = main.cloned().unwrap_or_default();
    let node = nodes.iter().find(|(key, _)| *key == facts.nid).or(nodes.first());
    let node = node.map_or_else(Node::default, |(_, node)| node.clone());
    let ProcessFacts { rank, size, local_rank, rank_from, pid, start, end, .. } = facts;
    Process {
        source: 0,
        rank,
        size,
        local_rank,
        rank_from,
        domain: ClockDomain {
            boot_id: node.boot_id.clone(),
            time_namespace: if is_merged_set(space) { MERGED_TIME_NAMESPACE } else { 0 },
        },
        pid: i32::try_from(pid).unwrap_or(-1),
        ppid: -1,
        first_seen: start.unwrap_or(0),
        last_seen: end,
        ..Process::of_file(node, Clock::Boottime)
    }
}

impl InputSurvey {
    fn lose(&mut self, table: Option<TableId>, cause: LossCause, rows: Option<u64>) {
        self.losses.push(Loss { source: 0, table, cause, rows });
    }

    /// Records rows that cannot be read as a loss, with a warning if `tell`.
    fn lose_to(&mut self, table: TableId, error: &ReadError, tell: bool) {
        if tell {
            self.warn(error);
        }
        let rows = if let ReadError::LastId { rows, .. } = error { Some(*rows) } else { None };
        self.lose(Some(table), LossCause::DamagedBlock, rows);
    }

    /// Adds a warning about unreadable data. A cut file has a warning already.
    fn warn(&mut self, error: &ReadError) {
        if matches!(error, ReadError::Cut { .. }) {
            return;
        }
        let cause = error.source().map_or(String::new(), |source| format!(" ({source})"));
        self.warnings.push(format!("{error}{cause}"));
    }
}
