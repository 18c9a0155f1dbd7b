//! Phase 5: writes the pages above the leaf pages, the small tables and the metadata, then analyses, verifies and
//! converts the file.

use super::agree::JobAgreement;
use super::analyse::analyse;
use super::survey::SurveyedInputs;
use super::write::{WrittenPages, row_maker};
use crate::input::plan::MergePlan;
use crate::options::{MergeArgs, OutputFormat};
use crate::output::counts::compare_counts;
use crate::output::piece_reader::PieceReader;
use crate::output::sets::{self, SharedTableRows};
use crate::output::verify::verify;
use crate::output::{legacy, processes, seal, write_failure};
use crate::partial_output::PartialOutput;
use crate::summary::{MergeReport, metadata};
use rpd_comm::{Comm, broadcast_result};
use rpd_console::{Failure, Progress};
use rpd_rocpd::Writer;

/// Completes the file and adds the output's row counts to the report, which becomes part of the file's metadata.
///
/// # Errors
/// A failure that the ranks have agreed on is returned by all of them. A failure of one rank ends the job in `run`.
#[expect(clippy::too_many_arguments, reason = "each is the result of one of the phases before")]
pub(super) fn seal(
    comm: &impl Comm,
    args: &MergeArgs,
    plan: &MergePlan,
    inputs: &SurveyedInputs,
    agreed: &JobAgreement,
    pages: WrittenPages,
    output: &PartialOutput,
    report: &mut MergeReport,
    progress: &mut Progress,
) -> Result<(), Failure> {
    progress.phase("seal");
    let (path, schema, sets) = (output.path(), &inputs.schema, &agreed.sets);
    let nodes = &agreed.findings.nodes;
    let WrittenPages { base, placed } = pages;
    let index = seal::gather_leaves(comm, &placed.index)?;
    if comm.rank() == 0 {
        seal::seal_pages(path, &index, &base.roots, base.next_page, placed.pages)?;
    }
    comm.barrier();
    let open = || -> Result<Writer, Failure> {
        let writer = Writer::open(path, &sets.all).map_err(write_failure)?;
        writer.set_cache(agreed.memory.cache_bytes()).map_err(write_failure)?;
        Ok(writer)
    };
    let mut written = placed.written;
    let reader = PieceReader::new(row_maker(args, inputs, agreed));
    written.add(processes::write_in_rank_order(comm, &open, sets, &reader, &inputs.surveys)?);
    let shared_rows = if sets.is_partitioned() {
        sets::write_in_rank_order(comm, &open, sets, schema, &inputs.surveys, &agreed.strings, nodes)?
    } else {
        let strings = seal::write_strings(comm, &open, schema, &inputs.surveys, &agreed.strings)?;
        SharedTableRows { strings, nodes: if comm.rank() == 0 { agreed.shared_rows.nodes } else { 0 } }
    };
    seal::count_shared_rows(&mut written, shared_rows);
    let counts = compare_counts(comm, schema, &agreed.numbering.totals, &agreed.findings.rows_read, written)?;
    (report.rows, report.placeholders, report.replaced) = (counts.rows, counts.placeholders, counts.replaced);
    if report.is_database {
        report.note_optiq(sets.all.len(), counts.high_agents);
    }
    if comm.rank() == 0 {
        let communicators = agreed.communicators.as_ref();
        let metadata = metadata(plan, report, &agreed.clocks, &agreed.findings, communicators);
        seal::finish(path, sets, schema, nodes, &index, &metadata)?;
    }
    // Every rank reads the complete file if a trace is drawn from it.
    comm.barrier();
    analyse(comm, args, agreed, output, report, progress)?;
    if args.verify {
        progress.phase("verify");
        broadcast_result(comm, || report.verified(verify(path, schema, sets.all.len(), &counts.accounts)?))?;
    }
    if args.output_format() == OutputFormat::Rpd {
        progress.phase("rpd");
        broadcast_result(comm, || {
            let left_out = legacy::replace_by_rpd(path, &output.converted_path(), report.verify.as_mut())?;
            report.note_left_out_of_rpd(left_out);
            Ok(())
        })?;
    }
    Ok(())
}
