use crate::describe::describe;
use crate::known::ReferredRows;
use crate::process_output::{COUNTERS, ProcessOutput};
use crate::record::{ProcessMetadata, RecordSeed};
use crate::scan::JsonScanner;
use crate::source::JsonSource;
use crate::survey::{FileSurvey, ProcessSections, RECORDS, survey};
use rpd_shard::file::Owner;
use rpd_shard::identity::{masked_command, node_of_file};
use rpd_shard::record::{Clock, LossCause, Process, ProcessExit};
use rpd_translator::{PendingLimit, TranslateError, Translation, Translator};
use std::io::Write;
use std::path::Path;

/// Maximum length of a record in bytes.
const MAX_RECORD_BYTES: usize = 1 << 20;

/// Writes the contents of a file as a shard with one source per process; returns the translation
/// notes. A truncated or damaged file yields the rows before the damage, a warning, and a loss of unknown size.
pub fn translate(path: &Path, sink: &mut dyn Write, owner: &Owner) -> Result<Translation, TranslateError> {
    let (FileSurvey { processes, damage, ignored, warnings }, mut scanner) = survey(path)?;
    let mut translator = Translator::new(sink, owner, PendingLimit::NONE)?;
    *translator.ignored_names() = ignored;
    warnings.into_iter().for_each(|line| translator.warn(line));
    let mut out = ProcessOutput { translator, source: 0, known: ReferredRows::default() };
    for (source, sections) in (1..).zip(&processes) {
        out.source = source;
        out.translator.process(&process(source, sections))?;
        process_rows(&mut out, &mut scanner, sections)?;
        // In a truncated file, the records may have been after its end.
        if !sections.has_records && damage.is_none() {
            out.warn(format!("process {source} has no {RECORDS}: its activity is not in the file"));
            out.lose(RECORDS, LossCause::Truncated, None);
        }
    }
    if let Some(damage) = damage {
        let inside = if damage.inside.is_empty() { "outside of all arrays" } else { &damage.inside };
        out.warn(format!(
            "it is damaged at byte {} ({inside}): {}; everything after it is lost",
            damage.offset, damage.reason
        ));
        // The damage may have hidden other arrays and processes.
        out.lose("everything after the damage", LossCause::Truncated, None);
    }
    Ok(out.translator.finish()?)
}

/// Returns the processes of a file in file order, as [`translate`] describes them in a shard. Reads the whole file,
/// because the last process may be at its end.
pub fn read_processes(path: &Path) -> Result<Vec<Process>, TranslateError> {
    let (survey, _) = survey(path)?;
    Ok((1..).zip(&survey.processes).map(|(source, sections)| process(source, sections)).collect())
}

/// Describes a process. The file states neither rank nor boot, and an old file does not state the node.
fn process(source: u32, sections: &ProcessSections) -> Process {
    let ProcessMetadata { pid, ppid, init_time, fini_time, command, node, .. } =
        sections.metadata.clone().unwrap_or_default();
    let first_seen = init_time.unwrap_or(0);
    let node = node_of_file(node, (pid, first_seen));
    Process {
        source,
        pid,
        ppid: ppid.unwrap_or(0),
        first_seen,
        last_seen: fini_time,
        command: masked_command(&command),
        // The profiler writes the file when the process ends.
        exit: fini_time.map(|_| ProcessExit::Unknown),
        ..Process::of_file(node, Clock::Boottime)
    }
}

/// Writes the tables and records of one process. Dispatches precede the counters that belong to them.
fn process_rows(
    out: &mut ProcessOutput<'_>,
    scanner: &mut JsonScanner<JsonSource>,
    sections: &ProcessSections,
) -> Result<(), TranslateError> {
    if sections.metadata.is_none() {
        out.warn(format!("process {} has no metadata: its process id is unknown", out.source));
    }
    describe(out, scanner, sections)?;
    let counted = sections.tables.get(COUNTERS).copied().unwrap_or_default();
    for (kind, section) in &sections.records {
        let name = format!("buffer_records.{kind}");
        out.each(scanner, &name, MAX_RECORD_BYTES, *section, |out, bytes| {
            let record = RecordSeed { kind, ignored: out.translator.ignored_names() }.read(bytes)?;
            match kind.as_str() {
                "kernel_dispatch" => out.write_kernel(&record, counted.elements > 0),
                "memory_copy" => out.write_copy(&record),
                "memory_allocation" | "scratch_memory" => out.write_allocation(&record, kind),
                api => out.write_call(&record, api),
            }
        })?;
    }
    out.each(scanner, COUNTERS, MAX_RECORD_BYTES, counted, |out, bytes| {
        out.write_counters(&serde_json::from_slice(bytes)?)
    })?;
    for (name, elements) in &sections.repeated {
        out.lose(name, LossCause::BadRecord, Some(*elements));
    }
    for name in &sections.malformed {
        out.lose(name, LossCause::BadRecord, None);
    }
    Ok(())
}
