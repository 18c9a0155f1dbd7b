//! Prints a report in each format.

mod csv_table;
mod json;
mod screen;
mod text;

pub(crate) use screen::next_text;
pub(crate) use text::head_line;

use crate::options::OutputFormat;
use crate::report::{EVIDENCE_TABLE, Report};
use csv_table::csv_table;
use json::json_object;
use rpd_comm::Launcher;
use rpd_console::Failure;
use rpd_console::wording::one_line;
use std::io::{ErrorKind, IsTerminal, Write};
use text::{TableStyle, report_text};

/// Prints the report on stdout. What a CSV table cannot hold is printed on stderr.
///
/// Text is coloured on a terminal, unless mpirun has started the program: it gives rank 0 a terminal wherever it prints
/// itself.
pub(crate) fn print(report: &Report, format: OutputFormat) -> Result<(), Failure> {
    let text = match format {
        OutputFormat::Text if is_coloured() => report_text(report, TableStyle::Coloured),
        OutputFormat::Text => report_text(report, TableStyle::Plain),
        OutputFormat::Md => report_text(report, TableStyle::Markdown),
        OutputFormat::Json => json_object(report)?,
        OutputFormat::Csv => {
            let evidence = report.tables.iter().find(|table| table.key == EVIDENCE_TABLE);
            let lines = evidence.or(report.tables.first()).map(csv_table).transpose()?;
            report.notes.iter().for_each(|note| eprintln!("note: {}", one_line(note)));
            for missing in &report.unavailable {
                eprintln!("note: unavailable: {}", one_line(&missing.text()));
            }
            lines.unwrap_or_default()
        }
    };
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // A reader that closed the pipe is not a failure.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::output(format!("cannot print the report: {error}")))
        }
        _ => Ok(()),
    }
}

fn is_coloured() -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let is_launched = Launcher::detect() != Launcher::None;
    !is_refused && !is_dumb && !is_launched && std::io::stdout().is_terminal()
}
