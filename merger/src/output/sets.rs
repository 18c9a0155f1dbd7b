//! Table sets of the output: one for the job, or one for each source.
//!
//! In the partitioned layout, ids count through the whole job, as in the merged layout. Only strings and nodes are
//! repeated in every table set that uses them, with their ids in the job.

use super::seal::{OpenWriter, in_rank_order};
use super::string_rows::StringRows;
use crate::agree::findings::JobFindings;
use crate::agree::nodes::JobNodes;
use crate::input::plan::MergePlan;
use crate::input::survey::{InputSurvey, with_lost_rows};
use crate::input::{InputSource, JobSchema, OpenInput};
use crate::options::TableLayout;
use crate::output::write_failure;
use crate::strings::{StringIds, hash};
use rpd_comm::{Comm, all_gather_counts, all_gather_values, shared_failure};
use rpd_console::Failure;
use rpd_rocpd::{Guid, MAX_SETS, TableSet, Writer};
use rpd_shard::model::rocpd;
use std::collections::{BTreeSet, HashSet};
use twox_hash::XxHash3_128;

/// The table sets, and their assignment to this rank's sources.
#[derive(Clone, Debug)]
pub(crate) struct TableSets {
    /// All table sets; the same on all ranks.
    pub all: Vec<TableSet>,
    /// Table set of the first source of each of this rank's inputs; `None` if all share one.
    first: Option<Vec<usize>>,
}

impl TableSets {
    /// Returns a single table set for all sources.
    pub(crate) fn one(guid: &Guid) -> TableSets {
        TableSets { all: vec![guid.into()], first: None }
    }

    /// Returns one table set for each source, in merge order. All ranks get the same sets, or the same failure.
    ///
    /// The guid of a table set is that of its source. A guid that rows cannot contain, or that occurs twice, is
    /// replaced by a hash.
    pub(crate) fn for_each_source(
        comm: &impl Comm,
        job: &Guid,
        surveys: &[InputSurvey],
        sources: u64,
    ) -> Result<TableSets, Failure> {
        if sources > MAX_SETS as u64 {
            return Err(Failure::usage(format!(
                "--layout partitioned holds {MAX_SETS} processes, which is all that SQLite joins, and these are \
                 {sources}; merge without it, or fewer at a time"
            )));
        }
        let own: Vec<String> =
            surveys.iter().flat_map(|s| s.sources.iter().map(|source| guid_of(&s.input, source))).collect();
        let by_rank = all_gather_values(comm, &own)?;
        let before = by_rank[..comm.rank()].iter().map(Vec::len).sum();
        let all = by_rank.concat();
        if all.is_empty() {
            // The metadata needs a table set.
            return Ok(TableSets::one(job));
        }
        let mut taken = HashSet::new();
        let all = all.iter().map(|guid| set_of(guid, &mut taken)).collect();
        let first = surveys.iter().scan(before, |next, survey| {
            let first = *next;
            *next += survey.sources.len();
            Some(first)
        });
        Ok(TableSets { all, first: Some(first.collect()) })
    }

    /// Returns whether each source has its own table set.
    pub(crate) fn is_partitioned(&self) -> bool {
        self.first.is_some()
    }

    /// Returns the position of a source's table set. `input` and `source` count among this rank's inputs.
    pub(crate) fn of(&self, input: usize, source: usize) -> usize {
        self.first.as_ref().map_or(0, |first| first[input] + source)
    }
}

/// Returns the guid under which the process of a source was recorded.
fn guid_of(input: &OpenInput, source: &InputSource) -> String {
    match input {
        OpenInput::Database(open) => open.table_set_of(source).map_or(String::new(), |set| set.guid.clone()),
        _ => Guid::from_bits(input.id_of(source)).to_string(),
    }
}

/// Returns the table set for this guid, or for the hash that replaces it.
fn set_of(guid: &str, taken: &mut HashSet<String>) -> TableSet {
    let mut number = 0u64;
    loop {
        let set = if number == 0 { TableSet::new(guid) } else { None };
        let set = set.unwrap_or_else(|| {
            let bytes: Vec<u8> = guid.bytes().chain([0]).chain(number.to_le_bytes()).collect();
            (&Guid::from_bits(XxHash3_128::oneshot(&bytes))).into()
        });
        if taken.insert(set.suffix().to_owned()) {
            return set;
        }
        number += 1;
    }
}

/// Row counts of strings and nodes in all table sets together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SharedTableRows {
    /// String rows.
    pub strings: u64,
    /// Node rows.
    pub nodes: u64,
}

/// Counts the strings and nodes in the table sets of all ranks.
pub(crate) fn count_shared_rows(
    comm: &impl Comm,
    surveys: &[InputSurvey],
    nodes: &JobNodes,
) -> Result<SharedTableRows, Failure> {
    let mut own = [0, 0];
    for (survey, source) in surveys.iter().flat_map(|s| s.sources.iter().map(move |source| (s, source))) {
        own[0] += survey.set_strings.get(source.string_table).map_or(0, |strings| strings.distinct);
        own[1] += node_ids(source, nodes).len() as u64;
    }
    let all = all_gather_counts(comm, &own)?;
    let sum = |i: usize| all.iter().map(|numbers| numbers[i]).sum();
    Ok(SharedTableRows { strings: sum(0), nodes: sum(1) })
}

/// Returns the ids of a source's nodes, ascending.
fn node_ids(source: &InputSource, nodes: &JobNodes) -> BTreeSet<i64> {
    source.nodes.iter().filter_map(|(_, node)| nodes.id(node)).collect()
}

/// Adds the strings and nodes of each rank's table sets, one rank after the other. Returns what this rank wrote.
pub(crate) fn write_in_rank_order(
    comm: &impl Comm,
    open: &OpenWriter<'_>,
    sets: &TableSets,
    schema: &JobSchema,
    surveys: &[InputSurvey],
    strings: &StringIds,
    nodes: &JobNodes,
) -> Result<SharedTableRows, Failure> {
    let mut written = SharedTableRows::default();
    let has_sources = surveys.iter().any(|survey| !survey.sources.is_empty());
    in_rank_order(comm, has_sources, || {
        let mut writer = open()?;
        for (input, survey) in surveys.iter().enumerate() {
            for (position, source) in survey.sources.iter().enumerate() {
                let set = sets.of(input, position);
                written.strings += add_strings(&mut writer, set, schema, survey, source, strings)
                    .map_err(|failure| with_lost_rows(failure, surveys, schema))?;
                written.nodes += add_nodes(&mut writer, set, source, nodes)?;
            }
            survey.input.release();
        }
        writer.commit().map_err(write_failure)
    })?;
    Ok(written)
}

/// Adds the strings of a source: all of its string table, and the builtin strings that its rows use.
fn add_strings(
    writer: &mut Writer,
    set: usize,
    schema: &JobSchema,
    survey: &InputSurvey,
    source: &InputSource,
    strings: &StringIds,
) -> Result<u64, Failure> {
    let Some(table) = schema.get(rocpd::STRING) else { return Ok(0) };
    let mut rows = StringRows::new(writer, set, table);
    // A text that occurs twice, or is a builtin string as well, is one row.
    let mut seen: HashSet<i64> = HashSet::new();
    let mut add = |text: &[u8]| match strings.id(hash(text)).filter(|id| seen.insert(*id)) {
        Some(id) => rows.add(id, text),
        None => Ok(()),
    };
    survey.input.each_string(source.string_table, &mut |_, text| add(text))?;
    let builtins = survey.set_strings.get(source.string_table).map_or(&[][..], |strings| &strings.builtins);
    builtins.iter().try_for_each(|builtin| add(builtin.text().as_bytes()))?;
    rows.finish()
}

fn add_nodes(
    writer: &mut Writer,
    set: usize,
    source: &InputSource,
    nodes: &JobNodes,
) -> Result<u64, Failure> {
    let Some(rows) = nodes.rows() else { return Ok(0) };
    let mut written = 0;
    for id in node_ids(source, nodes) {
        let row = usize::try_from(id - 1).map_err(Failure::damaged_message)?;
        written += writer.append_to(set, &rows.portion(row..row + 1)).map_err(write_failure)?;
    }
    Ok(written)
}

/// Returns the table sets of the output: one for all sources, or one for each source.
///
/// # Errors
/// On all ranks, if there are too many sources.
pub(crate) fn table_sets(
    comm: &impl Comm,
    layout: TableLayout,
    plan: &MergePlan,
    surveys: &[InputSurvey],
    findings: &JobFindings,
) -> Result<TableSets, Failure> {
    let guid = job_guid(plan, &findings.inputs);
    match layout {
        TableLayout::Merged => Ok(TableSets::one(&guid)),
        TableLayout::Partitioned => {
            let sets = TableSets::for_each_source(comm, &guid, surveys, findings.inputs.len() as u64);
            sets.map_err(|failure| shared_failure(comm, failure))
        }
    }
}

/// Returns the guid of the merged database: the same for the same inputs, wherever and however often they are merged.
fn job_guid(plan: &MergePlan, inputs: &[u128]) -> Guid {
    if let Some(kept) = plan.kept_guid.as_ref().and_then(|guid| guid.parse().ok()) {
        return kept;
    }
    let run_id = &plan.run_id;
    let bytes: Vec<u8> =
        run_id.bytes().chain([0]).chain(inputs.iter().flat_map(|id| id.to_le_bytes())).collect();
    Guid::from_bits(XxHash3_128::oneshot(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_that_rows_cannot_carry_or_that_repeat_are_replaced() {
        let mut taken = HashSet::new();
        let guids = ["g", "g", "", "", "a\0b", &"long".repeat(100), "it's \"one\""];
        let sets: Vec<TableSet> = guids.iter().map(|guid| set_of(guid, &mut taken)).collect();
        assert_eq!((sets[0].guid(), sets[6].guid()), ("g", "it's \"one\""));
        for set in &sets[1..6] {
            assert!(set.guid().parse::<Guid>().is_ok(), "{set:?}");
        }
        let different: HashSet<&str> = sets.iter().map(TableSet::suffix).collect();
        assert_eq!(different.len(), guids.len());
        let again: Vec<TableSet> = guids.iter().map(|guid| set_of(guid, &mut HashSet::new())).collect();
        assert_eq!(again[0], again[1], "the first one keeps its guid");
        assert_eq!(again[2..], [&sets[2..3], &again[3..4], &sets[4..]].concat()[..]);
    }
}
