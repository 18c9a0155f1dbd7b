//! The merge: plan, agree, number, write, seal. All collective calls are made from here (and from
//! [`crate::agree`] and [`crate::collectives`], which are called from here), on the main thread, by every
//! rank alike.

mod observe;

pub use observe::{JobObservations, job_observations};

use crate::agree::apart::note_of_files_far_apart;
use crate::agree::clocks::{How, JobClocks, Observed, Recorded};
use crate::agree::findings::agree_on_findings;
use crate::agree::nodes::Nodes;
use crate::agree::processes::{self, Processes};
use crate::budget::Held;
use crate::cli::{Layout, MergeArgs, OutputFormat};
use crate::input::former::FormerMerge;
use crate::input::gone::Since;
use crate::input::home::Homes;
use crate::input::plan::{Plan, PlannedInput, plan};
use crate::input::schema::JobSchema;
use crate::input::set_strings::SetStrings;
use crate::input::share::share;
use crate::input::source::{RowRoom, StackRoom};
use crate::input::survey::{Survey, survey};
use crate::listing::{Listing, translate_foreign};
use crate::number::{Bases, bases, demand};
use crate::output::base::BaseFile;
use crate::output::counts::{compare_counts, row_counts};
use crate::output::encode::{Encoder, Forms};
use crate::output::place::{Means, Placed, Target, place};
use crate::output::planned_size::{Numbers, PlannedContent, planned_bytes, with_converted};
use crate::output::rows::{Job, RowMaker};
use crate::output::sets::{self, Sets, SmallRows};
use crate::output::units::units;
use crate::output::verify::{verify, verify_published};
use crate::output::{legacy, processes as process_rows, seal, write_failure};
use crate::output_file::Partial;
use crate::report::{Report, metadata, plot::plot};
use crate::strings::{self, Distinct};
use rayon::prelude::*;
use rpd_clocks::{Align, ClockFile};
use rpd_collectives::{
    Matched, Participant, Said, Sample, clock_observations, exit_spread, late_ranks, match_calls,
};
use rpd_comm::{Comm, agree_on_result, broadcast_result, gather_counts, shared_failure};
use rpd_console::{Failure, Progress};
use rpd_rocpd::read::Keep;
use rpd_rocpd::{Guid, Writer};
use rpd_shard::model::{TableId, rocpd};
use rpd_shard::record::ClockDomain;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;
use twox_hash::XxHash3_128;

/// Merges the inputs. Every rank calls this; the report is the same in all of them.
///
/// Rank 0 lists the inputs, all translate foreign ones, then they are merged: anew without those that cannot
/// be read any more in the middle of it.
pub fn merge(comm: &impl Comm, args: &MergeArgs) -> Result<Report, Failure> {
    let begun = Instant::now();
    let mut progress = Progress::new(comm.rank() == 0 && !args.quiet);
    progress.phase("plan");
    let mut listing = broadcast_result(comm, || Listing::new(args))?;
    let partial = match args.dry_run {
        true => None,
        false => {
            let replaces = args.force || listing.replaces_run.is_some();
            let mut partial =
                agree_on_result(comm, Partial::begin(&listing.output, comm.rank() == 0, replaces))?;
            partial.share();
            Some(partial)
        }
    };
    let mut report = merge_listed(comm, args, &mut listing, partial.as_ref(), &mut progress)?;
    if let Some(mut partial) = partial {
        if comm.rank() == 0 {
            let published = partial.publish(args.share)?;
            if let Some(verified) = &report.verify {
                verify_published(&listing.output, published, &verified.contents)?;
            }
        }
        comm.all_gather(Vec::new());
        partial.release();
    }
    report.phases = progress.finish();
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

/// Merges listed inputs, up to the finished file that has no name yet. Every rank calls this.
pub(crate) fn merge_listed(
    comm: &impl Comm,
    args: &MergeArgs,
    listing: &mut Listing,
    partial: Option<&Partial>,
    progress: &mut Progress,
) -> Result<Report, Failure> {
    listing.hold_folders();
    let _folder = translate_foreign(comm, listing)?;
    let mut since = Since::default();
    loop {
        match merge_once(comm, args, listing, &mut since, partial, progress) {
            Err(failure) if failure.is_shared() => {
                let vanished = failure.into_vanished_inputs()?;
                broadcast_result(comm, || since.add(vanished))?;
            }
            ended => return ended,
        }
    }
}

/// Merges what is left of the listed inputs, up to the finished file that has no name yet.
fn merge_once(
    comm: &impl Comm,
    args: &MergeArgs,
    listing: &Listing,
    since: &mut Since,
    partial: Option<&Partial>,
    progress: &mut Progress,
) -> Result<Report, Failure> {
    // 1. Plan: rank 0 looks into the inputs, all deal them by bytes and read their own.
    progress.phase("plan");
    let plan = broadcast_result(comm, || {
        partial.map_or(Ok(()), Partial::forget)?;
        let plan = plan(
            (&listing.files, &listing.unused),
            listing.output.clone(),
            &listing.told,
            since,
            args.epilog,
        )?;
        listing.check_replaced(&plan.run_id).map(|()| plan)
    })?;
    let mut schema = JobSchema::new(&plan.schema);
    schema.stacks = StackRoom::new(args.memory.stack_ids());
    schema.rows = RowRoom::new(args.memory.row_bytes());
    let own = Own::new(&plan, comm);
    progress.phase_of_bytes("read", own.inputs.iter().map(|s| s.bytes).sum());
    let sample = Sample::new(args.memory.collectives());
    let surveyed = agree_on_result(comm, survey_all(&own, &schema, &sample, args, progress))?;
    let Surveyed { mut surveys, distinct, mut held, recorded, content } = surveyed;

    // 2. Agree: strings, nodes, what is missing, collectives, clocks.
    progress.phase("agree");
    if comm.size() > 1 {
        // Hashes deal them evenly.
        let asked: u64 = gather_counts(comm, &[distinct.len()])?.iter().map(|n| n[0]).sum();
        held.asked = asked / comm.size() as u64 + 1;
        agree_on_result(comm, args.memory.check(held, (1, 1)))?;
    }
    let memory = args.memory.without(held);
    let strings = strings::number(comm, distinct)?;
    let found = agree_on_findings(comm, &surveys)?;
    progress.phase("match");
    let mut matched = match_calls(comm, &sample, take_collectives(&mut surveys))?;
    progress.phase("align");
    let clock_file = listing.clock_file.as_ref();
    let clocks = align_clocks(comm, args, &plan, clock_file, recorded, &matched, &found.nodes)?;
    let far_apart = note_of_files_far_apart(comm, &surveys, &clocks)?;
    let late_ranks = late_ranks(comm, &matched, &clocks.fits)?;
    matched.counts.spread = exit_spread(comm, &matched, &clocks.fits)?;
    matched.kept = Vec::new();
    let guid = job_guid(&plan, &found.inputs);
    let sets = match args.layout {
        Layout::Merged => Sets::one(&guid),
        Layout::Partitioned => Sets::for_each_source(comm, &guid, &surveys, found.inputs.len() as u64)
            .map_err(|failure| shared_failure(comm, failure))?,
    };
    let mut report = Report::new(&plan, &schema, &clocks, &found);
    report.strings = (strings.before, strings.distinct);
    report.processes = found.processes;
    report.rows_read = row_counts(&schema, &found.rows_read);
    report.note_if_empty(&found.rows_read);
    report.is_database = args.form() == OutputFormat::Rocpd;
    report.died = found.died;
    report.deaths = found.deaths;
    (report.crashes, report.crashed) = (found.crashes, found.crashed);
    report.stopped = found.stopped;
    report.commands_ended = found.commands.list();
    match plan.only_former() {
        Some(former) => report.take_over(former),
        None => report.note_collectives(&matched, late_ranks),
    }
    report.note_clock_file(&clocks);
    report.notes.extend(far_apart.map(|note| plan.names.put_into(&note)));
    report.note_options_without_effect(args, &plan);
    report.note_unprobed(&clocks.logs);
    let incomplete = if args.strict { report.incomplete() } else { None };
    if comm.rank() == 0 {
        let mut warnings = report.warning_lines();
        // What the error will say is not said before it.
        let told = incomplete.as_ref().and_then(|(_, warning)| warning.as_ref());
        warnings.retain(|line| Some(line) != told);
        since.print(warnings);
    }
    if let Some((reason, _)) = incomplete {
        return Err(shared_failure(comm, Failure::incomplete(reason)));
    }

    // 3. Number: every source learns the first id of each of its tables.
    progress.phase("number");
    let mut numbered = agree_on_bases(comm, &schema, &surveys)?;
    let small = match sets.is_partitioned() {
        false => SmallRows { strings: strings.distinct, nodes: report.nodes as u64 },
        true => sets::count_small(comm, &surveys, &found.nodes)?,
    };
    numbered.totals.extend([(rocpd::STRING, small.strings), (rocpd::INFO_NODE, small.nodes)]);
    if args.form() == OutputFormat::Rocpd {
        report.note_amd_tools(args.layout, &numbered.processes);
    }
    if let Some(path) = &args.clock_plot {
        broadcast_result(comm, || plot(path, &clocks, &report))?;
    }
    let numbers = Numbers { schema: &schema, totals: &numbered.totals, sets: sets.all().len() as u64 };
    report.planned_bytes = with_converted(planned_bytes(comm, &content, numbers)?, args.form());
    let fits = broadcast_result(comm, || {
        let fits = listing.limit.check(report.planned_bytes, &plan.output);
        match args.dry_run {
            true => Ok(fits.err().map(|failure| failure.to_string())),
            false => fits.map(|()| None),
        }
    })?;
    if args.dry_run {
        report.notes.extend(fits);
        report.rows = row_counts(&schema, &numbered.totals);
        return Ok(report);
    }

    // 4. Write: rank 0 makes the empty tables; then every thread of every rank turns units of rows into
    //    leaf pages and writes them to their place.
    let partial = partial.ok_or_else(|| Failure::internal("no output was begun"))?;
    progress.phase_of_bytes("write", own.inputs.iter().map(|s| s.bytes).sum());
    let path = partial.path().to_owned();
    let base = BaseFile::create(comm, &path, &sets, &schema)?;
    let keep = args.environment.as_deref().map_or(Keep::All, Keep::Listed);
    let job = Job { schema: &schema, clocks: &clocks, nodes: &found.nodes, keep };
    let maker = RowMaker::new(&job, &surveys, &numbered.bases, &strings);
    let forms = Forms::new(&schema, sets.clone());
    let units = units(&surveys, &own.groups);
    let encoder = Encoder::new(units, maker, forms, progress, memory.spare_bytes());
    let target = Target { path: &path, first: base.behind };
    let means = Means {
        threads: memory.threads(rayon::current_num_threads(), held.largest),
        stream_bytes: memory.stream_bytes(),
        kept_bytes: memory.kept_bytes(),
        most_bytes: listing.limit.bytes(),
    };
    let Placed { mut written, index, pages } = place(comm, target, &encoder, means)?;
    drop(encoder);

    // 5. Seal: the pages above, strings, nodes, counts compared, metadata, rename.
    progress.phase("seal");
    let index = seal::gather_leaves(comm, &index)?;
    if comm.rank() == 0 {
        seal::seal_pages(&path, &index, &base.roots, base.behind, pages)?;
    }
    comm.all_gather(Vec::new());
    let open = || -> Result<Writer, Failure> {
        let writer = Writer::open(&path, sets.all()).map_err(write_failure)?;
        writer.set_cache(memory.cache_bytes()).map_err(write_failure)?;
        Ok(writer)
    };
    let maker = RowMaker::new(&job, &surveys, &numbered.bases, &strings);
    written.add(process_rows::write_in_turns(comm, &open, &sets, &maker, &surveys)?);
    let own_small = if sets.is_partitioned() {
        sets::write_in_turns(comm, &open, &sets, &schema, &surveys, &strings, &found.nodes)?
    } else {
        let strings = seal::strings_in_turns(comm, &open, &schema, &surveys, &strings)?;
        SmallRows { strings, nodes: if comm.rank() == 0 { small.nodes } else { 0 } }
    };
    seal::count_small(&mut written, own_small);
    let accounts = compare_counts(comm, &schema, &numbered.totals, &found.rows_read, written)?;
    let accounts = report.take_rows(accounts);
    if comm.rank() == 0 {
        let metadata = metadata(&plan, &report, &clocks, &found.nodes);
        seal::finish(&path, &sets, &schema, &found.nodes, &index, &metadata)?;
    }
    // Whoever draws it reads the whole of it.
    comm.all_gather(Vec::new());
    if args.verify {
        progress.phase("verify");
        let verified = match comm.rank() {
            0 => verify(&path, &schema, sets.all().len(), &accounts).and_then(|found| report.verified(found)),
            _ => Ok(()),
        };
        agree_on_result(comm, verified)?;
    }
    if args.form() == OutputFormat::Rpd {
        progress.phase("rpd");
        let replaced = match comm.rank() {
            0 => legacy::replace_by_rpd(&path, &partial.converted_path(), report.verify.as_mut())
                .map(|left_out| report.note_left_out_of_rpd(left_out)),
            _ => Ok(()),
        };
        agree_on_result(comm, replaced)?;
    }
    Ok(report)
}

/// The inputs of this rank.
struct Own<'a> {
    inputs: &'a [PlannedInput],
    homes: &'a Homes,
    /// Runs of them that stand together, counted from the first.
    groups: Vec<Range<usize>>,
}

impl<'a> Own<'a> {
    fn new(plan: &'a Plan, comm: &impl Comm) -> Own<'a> {
        let readers = plan.readers(comm.size());
        let place = readers.iter().position(|reader| *reader == comm.rank());
        let groups = place.map_or(Vec::new(), |place| share(&plan.inputs, place, readers.len()));
        let first = groups.first().map_or(0, |g| g.start);
        let next = groups.last().map_or(first, |g| g.end);
        let groups = groups.iter().map(|g| g.start - first..g.end - first).collect();
        Own { inputs: &plan.inputs[first..next], homes: &plan.homes, groups }
    }
}

/// What there is to know of this rank's inputs.
struct Surveyed {
    surveys: Vec<Survey>,
    distinct: Distinct,
    held: Held,
    recorded: Recorded,
    content: PlannedContent,
}

/// Surveys this rank's inputs, as many at once as there are threads and room: of the strings of an input only those
/// that are new are kept.
fn survey_all(
    own: &Own<'_>,
    schema: &JobSchema,
    sample: &Sample,
    args: &MergeArgs,
    progress: &Progress,
) -> Result<Surveyed, Failure> {
    let mut surveys = Vec::with_capacity(own.inputs.len());
    let mut distinct = Distinct::default();
    let mut held = Held::default();
    let mut recorded = Recorded::default();
    let mut content = PlannedContent::default();
    let bytes = |inputs: &[PlannedInput]| inputs.iter().map(|input| input.bytes).sum::<u64>();
    let (mut read, all) = (0, bytes(own.inputs));
    let mut vanished = Vec::new();
    let mut left = own.inputs;
    while !left.is_empty() {
        let at_once = args.memory.without(held).threads(rayon::current_num_threads(), held.largest);
        let (some, behind) = left.split_at(at_once.min(left.len()));
        left = behind;
        let survey_one = |planned: &PlannedInput| {
            let surveyed = survey(planned, schema, own.homes, sample);
            progress.add(planned.bytes);
            surveyed
        };
        let surveyed: Vec<Result<Survey, Failure>> = some.par_iter().map(survey_one).collect();
        for surveyed in surveyed {
            let mut survey = match surveyed {
                Ok(survey) => survey,
                Err(failure) => {
                    vanished.extend(failure.into_vanished_inputs()?);
                    continue;
                }
            };
            let largest = (survey.string_bytes() as u64).saturating_add(survey.longest_piece());
            held.largest = held.largest.max(largest);
            if args.layout == Layout::Partitioned {
                survey.set_strings = survey.hashes.iter().map(|hashes| SetStrings::new(hashes)).collect();
            }
            for hashes in std::mem::take(&mut survey.hashes) {
                distinct.add_table(hashes.into_iter())?;
            }
            recorded.add(&survey);
            content.add(&survey);
            survey.texts.clear();
            survey.shrink();
            held.inputs += survey.bytes() as u64;
            surveys.push(survey);
        }
        args.memory.check_stacks(schema.stacks.wanted())?;
        args.memory.check_row(schema.rows.longest())?;
        read += bytes(some);
        held.strings = distinct.len();
        args.memory.check(held, (read, all))?;
    }
    if vanished.is_empty() {
        Ok(Surveyed { surveys, distinct, held, recorded, content })
    } else {
        Err(Failure::inputs_vanished(vanished))
    }
}

/// The collectives of this rank's processes, in merge order.
fn take_collectives(surveys: &mut [Survey]) -> Vec<(Participant, Said)> {
    let sources = surveys.iter_mut().flat_map(|survey| &mut survey.sources);
    let takes_part = |said: &Said| !said.is_empty() || said.alone > 0 || said.is_singleton;
    let some = sources.filter(|source| takes_part(&source.collectives));
    some.map(|source| {
        let process = &source.process;
        let said = &mut source.collectives;
        let began = said.calls.iter().map(|call| call.enter).min().unwrap_or(process.first_seen);
        let last_exit = said.calls.iter().filter_map(|call| call.exit).max().unwrap_or(began);
        // Files that say nothing of the start of a process have 0 there.
        let first_seen = if process.first_seen > 0 { process.first_seen.min(began) } else { began };
        let last_seen = process.last_seen.unwrap_or(last_exit).max(last_exit);
        said.untimed.close(last_seen);
        let participant = Participant {
            rank: process.rank,
            worker: process.worker,
            began,
            first_seen,
            seen_ns: last_seen.saturating_sub(first_seen),
            initialized: said.mpi.initialized(),
            initialization_ns: said.mpi.initialization_ns(),
            finalization_ns: said.untimed.finalization_ns(),
            poll_gaps_ns: said.mpi.poll_gaps_ns(),
            lacks_calls: said.lacks_calls,
            is_cut: said.is_cut,
            hides_messages: said.hides_messages,
            is_in_threads: said.is_in_threads,
            is_singleton: said.is_singleton,
            pid: process.pid,
            host: process.node.hostname.clone(),
            domain: process.domain.clone(),
        };
        (participant, std::mem::take(said))
    })
    .collect()
}

/// Brings all clocks to that of the reference node, as it was asked for.
fn align_clocks(
    comm: &impl Comm,
    args: &MergeArgs,
    plan: &Plan,
    clock_file: Option<&ClockFile>,
    recorded: Recorded,
    matched: &Matched,
    nodes: &Nodes,
) -> Result<JobClocks, Failure> {
    let fixed: Vec<ClockDomain> = plan.former_merges.iter().filter_map(FormerMerge::reference).collect();
    let observed = Observed::gather(comm, recorded, &fixed)?;
    let meetings = match observed.is_of_several() && (args.align != Align::None || clock_file.is_some()) {
        true => clock_observations(comm, matched, &observed.observations.domains)?,
        false => Vec::new(),
    };
    let how = How {
        align: args.align,
        repair_causality: args.repair_causality,
        clock_file,
        nodes,
        homes: &plan.homes,
    };
    observed.align(comm, meetings, &how)
}

/// The merged guid: the same for the same inputs, wherever and however often they are merged.
fn job_guid(plan: &Plan, inputs: &[u128]) -> Guid {
    if let Some(kept) = plan.kept_guid.as_ref().and_then(|guid| guid.parse().ok()) {
        return kept;
    }
    let run_id = &plan.run_id;
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
    processes: Processes,
}

fn agree_on_bases(comm: &impl Comm, schema: &JobSchema, surveys: &[Survey]) -> Result<Numbered, Failure> {
    let tables = schema.numbered();
    let sources = || surveys.iter().flat_map(|s| &s.sources);
    let demands: Vec<Vec<u64>> = sources().map(|source| demand(source, schema)).collect();
    let sum = |numbers: &[Vec<u64>], i: usize| numbers.iter().map(|n| n[i]).fold(0u64, u64::saturating_add);
    let mine: Vec<u64> = (0..=tables.len()).map(|i| sum(&demands, i)).collect();
    let all = gather_counts(comm, &mine)?;
    let start: Vec<u64> = (0..=tables.len()).map(|i| sum(&all[..comm.rank()], i)).collect();
    let regions = tables.iter().position(|t| *t == rocpd::REGION).map_or(0, |i| sum(&all, i));
    if (0..=tables.len()).any(|i| sum(&all, i).saturating_add(regions) > i64::MAX as u64) {
        return Err(Failure::input("the inputs claim more rows than a database can number"));
    }
    let (ids, processes) = processes::number(comm, surveys)?;
    let mut flat = bases(schema, &start, &demands, ids, regions).into_iter();
    let bases = surveys.iter().map(|s| flat.by_ref().take(s.sources.len()).collect()).collect();

    let rows = |table: TableId| -> u64 {
        sources().map(|source| source.spaces.get(&table).map_or(0, |space| space.rows())).sum()
    };
    let mine: Vec<u64> = tables.iter().map(|t| rows(*t)).collect();
    let all = gather_counts(comm, &mine)?;
    let totals = tables.iter().enumerate().map(|(i, t)| (*t, sum(&all, i))).collect();
    Ok(Numbered { bases, totals, processes })
}
