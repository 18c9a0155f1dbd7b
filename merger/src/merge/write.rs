//! Phase 4: rank 0 creates the empty tables. Then every thread of every rank encodes units of rows into leaf pages
//! and writes them to their final position.

use super::agree::JobAgreement;
use super::job::MergeJob;
use super::survey::SurveyedInputs;
use crate::options::MergeArgs;
use crate::output::base::BaseFile;
use crate::output::encode::{TableForms, UnitEncoder};
use crate::output::piece_reader::PieceReader;
use crate::output::place::{RankPages, WriteTarget, write_pages};
use crate::output::row_context::RowContext;
use crate::output::rows::RowMaker;
use crate::output::units::units;
use rpd_comm::Comm;
use rpd_console::{Failure, Progress};
use rpd_rocpd::read::Keep;
use std::path::Path;

/// The file after this phase: all leaf pages are in place, the pages above them are missing.
pub(super) struct WrittenPages {
    /// The empty tables.
    pub(super) base: BaseFile,
    /// Pages that this rank wrote.
    pub(super) placed: RankPages,
}

/// Writes the rows of all ranks to a file under its temporary name.
///
/// # Errors
/// A failure that the ranks have agreed on is returned by all of them. A failure of one rank ends the job in `run`.
pub(super) fn write(
    comm: &impl Comm,
    args: &MergeArgs,
    job: &MergeJob,
    inputs: &SurveyedInputs,
    agreed: &JobAgreement,
    path: &Path,
    progress: &mut Progress,
) -> Result<WrittenPages, Failure> {
    progress.phase_of_bytes("write", inputs.bytes);
    let base = BaseFile::create(comm, path, &agreed.sets, &inputs.schema)?;
    let forms = TableForms::new(&inputs.schema, agreed.sets.clone());
    let units = units(&inputs.surveys, &inputs.groups);
    let rows = PieceReader::new(row_maker(args, inputs, agreed));
    let encoder = UnitEncoder::new(units, rows, forms, progress, agreed.memory.spare_bytes());
    let target = WriteTarget {
        path,
        first: base.next_page,
        threads: agreed.memory.threads(rayon::current_num_threads(), inputs.memory.largest),
        stream_bytes: agreed.memory.stream_bytes(),
        kept_bytes: agreed.memory.kept_bytes(),
        max_bytes: job.limit.bytes,
    };
    let placed = write_pages(comm, target, &encoder)?;
    Ok(WrittenPages { base, placed })
}

/// Returns the maker that turns rows of this rank's inputs into output rows.
pub(crate) fn row_maker<'a>(
    args: &'a MergeArgs,
    inputs: &'a SurveyedInputs,
    agreed: &'a JobAgreement,
) -> RowMaker<'a> {
    let keep = args.environment.as_deref().map_or(Keep::All, Keep::Listed);
    let nodes = &agreed.findings.nodes;
    let job = RowContext {
        schema: &inputs.schema,
        clocks: &agreed.clocks,
        nodes,
        keep,
        names_ranks: inputs.has_several_ranks,
    };
    RowMaker { job, surveys: &inputs.surveys, bases: &agreed.numbering.bases, strings: &agreed.strings }
}
