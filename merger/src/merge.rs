//! The merge: plan, agree, number, write, seal. All collective calls are made from here (and from
//! [`crate::agree::strings`], which is called from here), on the main thread, by every rank alike.

use crate::agree::nodes::Nodes;
use crate::agree::strings::{self, StringIds, sums};
use crate::cli::MergeArgs;
use crate::clock::{BestSets, Clocks, keep_best};
use crate::comm::Comm;
use crate::failure::{Exit, Failure};
use crate::input::death::Death;
use crate::input::expand::{REGIONS, SAMPLES};
use crate::input::plan::{Plan, plan, share};
use crate::input::survey::{Survey, survey};
use crate::number::{Bases, bases, demand, numbered_tables};
use crate::output::partial::Partial;
use crate::output::provenance;
use crate::output::write::{Job, Share, Written, write_share};
use crate::report::progress::Progress;
use crate::report::{Report, RowCount, SHOWN};
use rayon::prelude::*;
use rpd_rocpd::{Guid, Writer};
use rpd_shard::Shard;
use rpd_shard::model::{TableId, rocpd};
use rpd_shard::record::{ClockDomain, ClockSet, Loss, Node, wire};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Instant;
use twox_hash::XxHash3_128;

/// Merges the inputs. Every rank calls this; the report is the same in all of them.
pub fn merge(comm: &impl Comm, args: &MergeArgs) -> Result<Report, Failure> {
    let begun = Instant::now();
    let mut progress = Progress::new(comm.rank() == 0 && !args.quiet);

    // 1. Plan: rank 0 lists and checks the inputs, all deal them by bytes.
    progress.phase("plan");
    let plan = agree_on_plan(comm, args)?;
    let own = &plan.shards[share(&plan.shards, comm.rank(), comm.size())];
    progress.phase_of_bytes("read", own.iter().map(|s| s.bytes).sum());
    let surveys = own
        .par_iter()
        .map(|planned| {
            let surveyed = Shard::open(&planned.path).map(survey);
            progress.add(planned.bytes);
            surveyed
        })
        .collect::<Result<Vec<Survey>, _>>()?;

    // 2. Agree: strings, nodes, clocks, what is missing.
    progress.phase("agree");
    let hashes: Vec<_> = surveys.iter().map(|s| s.hashes.as_slice()).collect();
    let strings = strings::number(comm, &hashes)?;
    let found = agree_on_findings(comm, &surveys)?;
    let clocks = Clocks::new(found.clocks, found.reference);
    let guid = job_guid(&plan.run_id, &found.inputs);
    let mut report = Report::new(&plan, &found.warnings, &found.losses, &clocks, &found.nodes);
    report.strings = (strings.before, strings.distinct);
    report.processes = found.processes;
    report.rows_read = row_counts(&found.rows_read);
    report.note_if_empty(&found.rows_read);
    report.died = found.died;
    report.deaths = found.deaths;
    if comm.rank() == 0 {
        report.print_warnings();
    }
    if args.strict
        && let Some(reason) = report.incomplete()
    {
        return Err(together(comm, Failure::Incomplete(reason)));
    }

    // 3. Number: every source learns the first id of each of its tables.
    let numbered = agree_on_bases(comm, &surveys)?;
    if args.dry_run {
        let mut totals = numbered.totals;
        totals.extend([(rocpd::STRING, strings.distinct), (rocpd::INFO_NODE, report.nodes as u64)]);
        report.rows = row_counts(&totals);
        report.seconds = begun.elapsed().as_secs_f64();
        return Ok(report);
    }

    // 4. Write: in turns for now; ids and rows are settled, so that leaf pages can be written by all
    //    ranks at once behind the same call.
    progress.phase_of_bytes("write", own.iter().map(|s| s.bytes).sum());
    let mut partial = Partial::begin(&plan.output, comm.rank() == 0, args.force)?;
    let job = Job { guid, clocks: &clocks, nodes: &found.nodes };
    let written = write_in_turns(comm, &mut partial, &job, &surveys, &numbered.bases, &strings, &progress)?;

    // 5. Seal: counts compared, metadata, rename.
    progress.phase("seal");
    seal(comm, &mut report, &numbered, &found.rows_read, written)?;
    if comm.rank() == 0 {
        let mut writer = Writer::open(partial.path(), &guid)?;
        for (tag, value) in provenance::metadata(&plan, &report, &clocks, &found.nodes) {
            writer.metadata(tag, &value)?;
        }
        writer.commit()?;
        partial.publish()?;
    }
    comm.all_gather(Vec::new());
    partial.release();
    progress.finish();
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

/// What rank 0 planned, or why it could not, told to all.
fn agree_on_plan(comm: &impl Comm, args: &MergeArgs) -> Result<Plan, Failure> {
    let mut failure = None;
    let mut message = Vec::new();
    if comm.rank() == 0 {
        let result = plan(args).map_err(|error| {
            let exit = error.exit() as u8;
            failure = Some(error);
            exit
        });
        message = wire::encode(&result);
    }
    let all = comm.all_gather(message);
    let told: Result<Plan, u8> = wire::decode_message(&all[0]).map_err(Failure::message)?;
    told.map_err(|exit| match failure {
        Some(failure) => Failure::Together(Box::new(failure)),
        None => Failure::ToldByRank0(exit_of(exit)),
    })
}

fn exit_of(code: u8) -> Exit {
    let all = [Exit::Usage, Exit::Incomplete, Exit::Input, Exit::Output];
    all.into_iter().find(|e| *e as u8 == code).unwrap_or(Exit::Internal)
}

/// A failure that all ranks found alike is told once.
fn together(comm: &impl Comm, failure: Failure) -> Failure {
    match comm.rank() {
        0 => Failure::Together(Box::new(failure)),
        _ => Failure::ToldByRank0(failure.exit()),
    }
}

/// What one rank found in its shards.
#[derive(Serialize, Deserialize, Default)]
struct Findings {
    nodes: Vec<Node>,
    clocks: Vec<ClockSet>,
    /// Domains of the processes, by first occurrence.
    domains: Vec<ClockDomain>,
    inputs: Vec<u128>,
    losses: Vec<Loss>,
    warnings: Vec<String>,
    rows_read: BTreeMap<TableId, u64>,
    /// Processes that died by a signal; the first ones.
    deaths: Vec<Death>,
    died: u64,
}

/// What all ranks found, in merge order.
struct Found {
    nodes: Nodes,
    clocks: BestSets,
    reference: ClockDomain,
    inputs: Vec<u128>,
    losses: Vec<Loss>,
    warnings: Vec<String>,
    rows_read: BTreeMap<TableId, u64>,
    processes: u64,
    deaths: Vec<Death>,
    died: u64,
}

fn agree_on_findings(comm: &impl Comm, surveys: &[Survey]) -> Result<Found, Failure> {
    let sources = || surveys.iter().flat_map(|s| &s.sources);
    let mut nodes = Nodes::default();
    sources().for_each(|s| nodes.add(&s.process.node));
    let mut best = BestSets::new();
    surveys.iter().for_each(|s| keep_best(&mut best, s.shard.clocks.iter().cloned()));
    // A shard of a silent rank has clocks and no process.
    let recorded = surveys.iter().flat_map(|s| s.shard.clocks.first()).map(|set| &set.domain);
    let mut mine = Findings {
        nodes: nodes.nodes().to_vec(),
        clocks: best.into_values().collect(),
        domains: distinct(sources().map(|s| &s.process.domain).chain(recorded)),
        inputs: surveys
            .iter()
            .flat_map(|s| s.sources.iter().map(|source| input_id(&s.shard, source)))
            .collect(),
        losses: sum_losses(surveys.iter().flat_map(|s| &s.losses)),
        warnings: surveys.iter().flat_map(|s| s.warnings.clone()).collect(),
        rows_read: BTreeMap::new(),
        deaths: first_deaths(surveys.iter().flat_map(|s| s.deaths.iter().cloned())),
        died: surveys.iter().map(|s| s.deaths.len() as u64).sum(),
    };
    surveys.iter().for_each(|s| add_rows(&mut mine.rows_read, &s.rows_read));
    let mut found = Found {
        nodes: Nodes::default(),
        clocks: BestSets::new(),
        reference: ClockDomain { boot_id: String::new(), time_namespace: 0 },
        inputs: Vec::new(),
        losses: Vec::new(),
        warnings: Vec::new(),
        rows_read: BTreeMap::new(),
        processes: 0,
        deaths: Vec::new(),
        died: 0,
    };
    let mut domains = Vec::new();
    for message in comm.all_gather(wire::encode(&mine)) {
        let theirs: Findings = wire::decode_message(&message).map_err(Failure::message)?;
        theirs.nodes.iter().for_each(|node| found.nodes.add(node));
        keep_best(&mut found.clocks, theirs.clocks);
        domains.extend(theirs.domains);
        add_rows(&mut found.rows_read, &theirs.rows_read);
        found.processes += theirs.inputs.len() as u64;
        found.inputs.extend(theirs.inputs);
        found.losses.extend(theirs.losses);
        found.warnings.extend(theirs.warnings);
        found.deaths.extend(theirs.deaths);
        found.died += theirs.died;
    }
    found.deaths = first_deaths(found.deaths.into_iter());
    found.losses = sum_losses(found.losses.iter());
    // The node of the lowest rank; one whose clocks are not known can be no reference for others.
    let known = domains.iter().find(|domain| found.clocks.contains_key(*domain));
    if let Some(domain) = known.or(domains.first()) {
        found.reference = domain.clone();
    }
    Ok(found)
}

/// As many as are told.
fn first_deaths(deaths: impl Iterator<Item = Death>) -> Vec<Death> {
    let mut all: Vec<Death> = deaths.collect();
    all.sort_by_cached_key(Death::order);
    all.truncate(SHOWN);
    all
}

fn distinct<'a>(domains: impl Iterator<Item = &'a ClockDomain>) -> Vec<ClockDomain> {
    let mut all: Vec<ClockDomain> = Vec::new();
    for domain in domains {
        // Mostly that of the process before.
        if all.last() != Some(domain) && !all.contains(domain) {
            all.push(domain.clone());
        }
    }
    all
}

fn add_rows(to: &mut BTreeMap<TableId, u64>, rows: &BTreeMap<TableId, u64>) {
    for (table, rows) in rows {
        *to.entry(*table).or_default() += rows;
    }
}

/// One entry per table and cause.
fn sum_losses<'a>(losses: impl Iterator<Item = &'a Loss>) -> Vec<Loss> {
    let mut sums: BTreeMap<_, Option<u64>> = BTreeMap::new();
    for loss in losses {
        let sum = sums.entry((loss.table, loss.cause)).or_insert(Some(0));
        *sum = sum.zip(loss.rows).map(|(a, b)| a.saturating_add(b));
    }
    sums.into_iter().map(|((table, cause), rows)| Loss { source: 0, table, cause, rows }).collect()
}

/// Names one process of one shard, whatever the path of the file.
pub(crate) fn input_id(shard: &Shard, source: &crate::input::source::Source) -> u128 {
    let p = &source.process;
    let run = &shard.identity.run_id;
    let name =
        format!("{run}\0{:?}\0{}\0{}\0{}\0{}", p.rank, p.domain.boot_id, p.pid, p.start_ticks, p.source);
    XxHash3_128::oneshot(name.as_bytes())
}

/// The merged guid: the same for the same inputs, wherever and however often they are merged.
fn job_guid(run_id: &str, inputs: &[u128]) -> Guid {
    let bytes: Vec<u8> =
        run_id.bytes().chain([0]).chain(inputs.iter().flat_map(|id| id.to_le_bytes())).collect();
    Guid::from_bits(XxHash3_128::oneshot(&bytes))
}

/// The outcome of phase 3.
struct Numbered {
    /// First ids of this rank's sources, shard by shard.
    bases: Vec<Vec<Bases>>,
    /// Rows of the whole job, per table.
    totals: BTreeMap<TableId, u64>,
}

fn agree_on_bases(comm: &impl Comm, surveys: &[Survey]) -> Result<Numbered, Failure> {
    let tables = numbered_tables();
    let demands: Vec<Vec<u64>> = surveys.iter().flat_map(|s| s.sources.iter().map(demand)).collect();
    let sum = |numbers: &[Vec<u64>], i: usize| numbers.iter().map(|n| n[i]).fold(0u64, u64::saturating_add);
    let mine: Vec<u64> = (0..=tables.len()).map(|i| sum(&demands, i)).collect();
    let all = sums(comm, &mine)?;
    let start: Vec<u64> = (0..=tables.len()).map(|i| sum(&all[..comm.rank()], i)).collect();
    let regions = tables.iter().position(|t| *t == rocpd::REGION).map_or(0, |i| sum(&all, i));
    if (0..=tables.len()).any(|i| sum(&all, i).saturating_add(regions) > i64::MAX as u64) {
        return Err(Failure::Input("the inputs claim more rows than a database can number".to_owned()));
    }
    let mut flat = bases(&start, &demands, regions).into_iter();
    let bases = surveys.iter().map(|s| flat.by_ref().take(s.sources.len()).collect()).collect();

    let rows = |table: TableId| -> u64 {
        let of_source = |s: &crate::input::source::Source| match table {
            rocpd::INFO_PROCESS => 1,
            _ => s.spaces.get(&table).map_or(0, |space| space.rows()),
        };
        surveys.iter().flat_map(|s| &s.sources).map(of_source).sum()
    };
    let mine: Vec<u64> = tables.iter().map(|t| rows(*t)).collect();
    let all = sums(comm, &mine)?;
    let totals = tables.iter().enumerate().map(|(i, t)| (*t, sum(&all, i))).collect();
    Ok(Numbered { bases, totals })
}

/// Rank behind rank opens the database and adds its rows: ids ascend, so that every table is appended to.
fn write_in_turns(
    comm: &impl Comm,
    partial: &mut Partial,
    job: &Job<'_>,
    surveys: &[Survey],
    bases: &[Vec<Bases>],
    strings: &StringIds,
    progress: &Progress,
) -> Result<Written, Failure> {
    let mut written = Written::default();
    for turn in 0..comm.size() {
        if turn == comm.rank() {
            let mut writer = match turn {
                0 => Writer::create(partial.path(), &job.guid)?,
                _ => Writer::open(partial.path(), &job.guid)?,
            };
            if turn == 0
                && let Some(nodes) = job.nodes.rows()
            {
                written.count(rocpd::INFO_NODE, writer.append(&nodes)?);
            }
            let share = Share { surveys, bases, strings };
            write_share(&mut writer, job, &share, &mut written, progress)?;
            writer.commit()?;
        }
        comm.all_gather(Vec::new());
    }
    Ok(written)
}

/// Rows in = rows out: what was written against what was read, and against what was numbered.
fn seal(
    comm: &impl Comm,
    report: &mut Report,
    numbered: &Numbered,
    read: &BTreeMap<TableId, u64>,
    written: Written,
) -> Result<(), Failure> {
    let mut all = Written::default();
    for message in comm.all_gather(wire::encode(&written)) {
        all.add(wire::decode_message(&message).map_err(Failure::message)?);
    }
    let mut expected = numbered.totals.clone();
    expected.insert(rocpd::STRING, report.strings.1);
    expected.insert(rocpd::INFO_NODE, report.nodes as u64);
    for (table, expected) in expected {
        let rows = all.rows.get(&table).copied().unwrap_or(0);
        let placeholders = all.placeholders.get(&table).copied().unwrap_or(0);
        let read = rows_out_of(read, table).unwrap_or(rows - placeholders);
        if rows != expected || rows != read + placeholders {
            let text = format!(
                "{rows} rows of {table} were written, {expected} were counted, {read} were read, \
                 {placeholders} stand for lost ones"
            );
            return Err(together(comm, Failure::Internal(text)));
        }
    }
    report.rows = row_counts(&all.rows);
    report.placeholders = row_counts(&all.placeholders);
    report.replaced =
        all.replaced.into_iter().map(|((t, column), rows)| (t.to_string(), column, rows)).collect();
    Ok(())
}

/// How many rows of a RocPD table the rows that were read make; `None` where it depends on their values.
fn rows_out_of(read: &BTreeMap<TableId, u64>, table: TableId) -> Option<u64> {
    let of = |tables: &[TableId]| -> u64 { tables.iter().filter_map(|t| read.get(t)).sum() };
    match table {
        rocpd::EVENT => Some(of(&[table]) + of(&REGIONS) + of(&SAMPLES)),
        rocpd::REGION => Some(of(&[table]) + of(&REGIONS)),
        rocpd::SAMPLE => Some(of(&[table]) + of(&SAMPLES)),
        rocpd::STRING | rocpd::INFO_NODE | rocpd::INFO_PROCESS | rocpd::TRACK | rocpd::ARG => None,
        _ => Some(of(&[table])),
    }
}

fn row_counts(rows: &BTreeMap<TableId, u64>) -> Vec<RowCount> {
    rows.iter().map(|(table, rows)| RowCount { table: table.to_string(), rows: *rows }).collect()
}
