//! The report as one HTML page: `rpd-report html`.
//!
//! [`RowParts`] reads the rows of the run by the functions of other subcommands, and [`write_html`] analyses its calls
//! once. [`NamedCounters`] are read afterwards, as the analysis names the rank.
//! [`PageFacts`](page_facts::PageFacts) collects the parts: tables, a heat map and a matrix, which [`page`] puts into the
//! template of `assets`. All texts of the run are data of the page's script, never markup.

mod blame_matrix;
mod counters;
mod heat_map;
mod named_ranks;
mod packed_tables;
mod page;
mod page_facts;
mod page_file;
mod row_parts;
mod time_cells;

use crate::input::ReportRun;
use crate::waiting::{ListedParts, with_analysis};
use counters::NamedCounters;
use page_file::PageFile;
use row_parts::RowParts;
use rpd_comm::{Comm, agree_on_result};
use rpd_console::Failure;
use rpd_console::wording::{grouped, one_line};
use std::path::Path;

/// Writes the page to `output` on rank 0. With `force`, an older page is replaced. Every merge rank calls this.
pub(crate) fn write_html(
    run: &ReportRun,
    comm: &dyn Comm,
    (output, force): (&Path, bool),
    max_rows: usize,
) -> Result<(), Failure> {
    let begun = if comm.rank() == 0 { PageFile::begin(output, force).map(Some) } else { Ok(None) };
    let file = agree_on_result(comm, begun)?;
    let mut parts = RowParts::read(run, comm, max_rows)?;
    let listed = ListedParts { messages: true, ..ListedParts::default() };
    let made = with_analysis(run, comm, listed, |found| parts.facts(run, found, max_rows))?;
    let request = || made.as_ref().and_then(|(_, named)| parts.counter_request(named));
    let counters = NamedCounters::read(run, comm, request)?;
    let written = made.zip(file).map_or(Ok(()), |((mut facts, named), file)| {
        facts.add_counters(counters.as_ref(), &named);
        let page = facts.text()?;
        file.write(&page)?;
        if !run.is_quiet {
            let size = grouped((page.len() as u64).div_ceil(1024));
            eprintln!("wrote {} ({size} KiB)", one_line(&output.display().to_string()));
        }
        Ok(())
    });
    agree_on_result(comm, written)
}
