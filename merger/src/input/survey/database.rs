//! Survey of a RocPD database, one table set at a time.

use crate::input::opened::OpenDatabase;
use crate::input::source::join;
use crate::input::survey::InputSurvey;
use crate::input::survey::collectives::of_table_set;
use crate::input::survey::database_nodes::main_process;
use crate::input::survey::database_pieces::ReferenceKeys;
use crate::input::survey::database_strings::TableSetStrings;
use crate::input::survey::input_survey::{hashes_of_builtins, shorten};
use crate::input::survey::placeholders::reserve_placeholders;
use crate::input::survey::table_set_reader::TableSetReader;
use crate::input::{
    BuiltinString, HostClocks, InputSource, InputTables, JobSchema, KeySpace, OpenInput, SourcePiece,
    SourceTracks, StackSpace, StringPieces,
};
use rpd_collectives::CallSample;
use rpd_rocpd::read::Database;
use rpd_shard::model::{Schema, Table, TableId, rocpd};
use rpd_shard::record::LossCause;
use std::collections::{BTreeMap, BTreeSet};
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
    for set in taken {
        let Some(found) = database.table_sets().get(*set) else { continue };
        let adopted: InputTables = job.adopt(&found.schema);
        let reader = TableSetReader {
            database: &database,
            table_set: *set,
            found,
            tables: &adopted,
            row_limit: &job.rows,
        };
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
        let TableSetStrings { keys: strings, mut hashes, readable, names } = self.strings(survey);
        string_tables.push(readable);
        let nodes = self.nodes();
        let mut spaces: BTreeMap<TableId, KeySpace> = BTreeMap::new();
        let mut pieces = Vec::new();
        let mut builtins = BTreeSet::new();
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
                let first = facts.key_ranges.first().map_or(0, |range| range.0);
                if space.stored.last().is_some_and(|last| first < last.next) {
                    let path = self.database.path().display();
                    survey
                        .warnings
                        .push(format!("{path}: ids of {} from {first} on are out of order", adopted.name));
                    survey.lose(Some(adopted.id), LossCause::DamagedBlock, Some(facts.rows));
                    continue;
                }
                let first = space.next;
                facts.key_ranges.iter().for_each(|(first, next)| space.add_keys(*first, *next));
                *survey.rows_read.entry(adopted.id).or_default() += facts.rows;
                missing.extend(facts.missing);
                stacks = join(stacks, facts.stacks);
                if facts.lost_strings {
                    builtins.insert(BuiltinString::Lost);
                }
                pieces.push(SourcePiece::Rows { table_set: self.table_set, table: place, piece, first });
            }
            space.expanded = (space.next, space.next);
            if !space.stored.is_empty() {
                spaces.insert(adopted.id, space);
            }
        }
        reserve_placeholders(&mut spaces, missing, job);
        if spaces.values().any(|space| space.placeholder.is_some()) {
            builtins.insert(BuiltinString::Lost);
        }
        hashes.extend(hashes_of_builtins(&builtins));
        survey.hashes.push(hashes);
        let stacks = StackSpace::of(stacks, &job.stacks, self.rows_with_stacks(&pieces));
        pieces.push(SourcePiece::Tail);
        let process = main_process(self.found, &nodes);
        let tables = self.tables.clone();
        let collectives = of_table_set(self.database, self.found, &pieces, &names, &process, sample);
        let (spaces, pieces, tracks) = (spaces.into(), pieces.into(), SourceTracks::new());
        InputSource {
            process,
            nodes,
            spaces,
            stacks,
            pieces,
            tracks,
            string_table,
            tables,
            collectives,
            memberships: crate::input::memberships::Memberships::default(),
        }
    }
}
