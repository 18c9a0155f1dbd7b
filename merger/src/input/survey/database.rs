//! Survey of a RocPD database, one table set at a time.

use crate::input::expand::BuiltinString;
use crate::input::host_clocks::HostClocks;
use crate::input::opened::{InputTables, OpenDatabase, OpenInput, StringPieces};
use crate::input::schema::JobSchema;
use crate::input::source::{InputSource, KeySpace, RowRoom, SourcePiece, SourceTracks, StackSpace, join};
use crate::input::survey::collectives::of_space;
use crate::input::survey::database_nodes::main_process;
use crate::input::survey::database_pieces::ReferenceKeys;
use crate::input::survey::input_survey::{InputSurvey, hashes_of_words, shorten};
use crate::input::survey::placeholders::reserve_placeholders;
use crate::strings::{StringHash, hash};
use rpd_collectives::{CallSample, RegionNames};
use rpd_rocpd::read::{Database, Piece, ReadError, Space, TakeRows, Wanted};
use rpd_shard::model::{Kind, Local, Rows, Schema, Table, TableId, Value, rocpd};
use rpd_shard::record::{Loss, LossCause};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::Arc;

/// Maximum number of warnings per database; further damage is only counted.
const MAX_WARNINGS: usize = 20;

/// Surveys the table sets of a database, with the pieces of each table in parallel.
pub(super) fn survey_database(
    database: Database,
    taken: &[usize],
    job: &JobSchema,
    host_clocks: &HostClocks,
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
        let reader =
            TableSetReader { database: &database, space: *space, found, tables: &adopted, room: &job.rows };
        let mut source = reader.survey(job, sample, &mut string_tables, &mut survey);
        if let [(_, node)] = &mut source.nodes[..]
            && host_clocks.find_node(&mut source.process)
        {
            node.clone_from(&source.process.node);
        }
        survey.sources.push(source);
    }
    // The same damage can be found when a file is opened and again when its rows are read.
    let mut seen = BTreeSet::new();
    survey.warnings.retain(|line| seen.insert(line.clone()));
    shorten(&mut survey.warnings, MAX_WARNINGS, database.path());
    survey.sources.sort_by_cached_key(InputSource::order);
    database.release();
    survey.input = OpenInput::Database(OpenDatabase { database, strings: string_tables });
    survey
}

/// Reads one table set for the survey.
pub(super) struct TableSetReader<'a> {
    pub(super) database: &'a Database,
    pub(super) space: usize,
    pub(super) found: &'a Space,
    pub(super) tables: &'a InputTables,
    pub(super) room: &'a RowRoom,
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

impl TableSetReader<'_> {
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
            let known = ReferenceKeys { strings: &strings, nodes: &nodes, spaces: &spaces };
            for (piece, facts) in self.table_pieces(place, adopted, &known, survey) {
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
    fn each_string(&self, place: usize, piece: &Piece, take: &mut TakeRows<'_>) {
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

    /// Reads the rows of all tables with stack ids again.
    fn rows_with_stacks(&self, pieces: &[SourcePiece]) -> impl Iterator<Item = Rows<Local>> {
        pieces.iter().filter_map(|piece| {
            let SourcePiece::Rows { space, table, piece } = piece else { return None };
            let has_stacks = self.found.tables[*table].table.columns.iter().any(|c| c.kind == Kind::Stack);
            has_stacks.then(|| self.database.rows(*space, *table, piece, Wanted::Links).ok())?
        })
    }
}

fn text_of(value: Value<'_>) -> &[u8] {
    match value {
        Value::Text(text) | Value::Blob(text) => text,
        _ => b"",
    }
}

impl InputSurvey {
    fn lose(&mut self, table: Option<TableId>, cause: LossCause, rows: Option<u64>) {
        self.losses.push(Loss { source: 0, table, cause, rows });
    }

    /// Records rows that cannot be read as a loss, with a warning if `warns`.
    pub(super) fn lose_to(&mut self, table: TableId, error: &ReadError, warns: bool) {
        if warns {
            self.warn(error);
        }
        let rows = if let ReadError::LastId { rows, .. } = error { Some(*rows) } else { None };
        self.lose(Some(table), LossCause::DamagedBlock, rows);
    }

    /// Adds a warning about unreadable data. A cut file has a warning already.
    pub(super) fn warn(&mut self, error: &ReadError) {
        if matches!(error, ReadError::Cut { .. }) {
            return;
        }
        let cause = error.source().map_or(String::new(), |source| format!(" ({source})"));
        self.warnings.push(format!("{error}{cause}"));
    }
}
