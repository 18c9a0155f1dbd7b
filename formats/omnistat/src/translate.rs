use crate::rows::{COMMAND, SeenTimes, TableRows};
use crate::series::TableHead;
use crate::table::{TableLine, TableLines};
use rpd_files::open_input;
use rpd_shard::file::Owner;
use rpd_shard::identity::node_of_file;
use rpd_shard::record::{Clock, Node, Process};
use rpd_translator::{PendingLimit, TranslateError, Translation, Translator};
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::Path;

/// A table has little text, and its rows belong to all nodes.
const PENDING_LIMIT: PendingLimit =
    PendingLimit { rows: PendingLimit::MANY_PROCESSES.rows, text_bytes: usize::MAX };
const WHOLE_SECONDS: &str = "its times are in whole seconds: the true time of a sample may be up to a second later, \
                             which the error bounds do not include";

/// Writes a table as a shard with one source per node; returns the translation notes. A truncated table
/// yields the lines before its end.
pub fn translate(path: &Path, sink: &mut dyn Write, owner: &Owner) -> Result<Translation, TranslateError> {
    let mut lines = open(path)?;
    let head = TableHead::read(&mut lines, path)?;
    let translator = Translator::new(sink, owner, PENDING_LIMIT)?;
    let mut rows = TableRows::new(translator, head.instances.len());
    for process in processes(&head, rows.seen()) {
        rows.translator.process(&process)?;
    }
    let counters = rows.describe(&head)?;
    let mut first_bad = None;
    loop {
        let line = lines.next().map_err(|source| TranslateError::io(path, source))?;
        let is_kept = match line {
            None => break,
            Some(TableLine::Cells(cells)) => rows.line(&head, &counters, cells)?,
            Some(TableLine::TooLong | TableLine::Cut) => false,
        };
        if !is_kept {
            rows.lose("lines", None);
            first_bad.get_or_insert(lines.number);
        }
    }
    let is_in_whole_seconds = rows.is_in_whole_seconds();
    for process in processes(&head, rows.seen()) {
        rows.translator.process(&process)?;
    }
    let mut translator = rows.translator;
    if is_in_whole_seconds {
        translator.note(WHOLE_SECONDS.to_owned());
    }
    if let Some(line) = first_bad {
        translator.warn(format!("line {line} has no time, is cut or too long"));
    }
    translator.warn_of_losses();
    Ok(translator.finish()?)
}

/// Returns the nodes of a table as the processes that [`translate`] describes, but without times.
pub fn read_processes(path: &Path) -> Result<Vec<Process>, TranslateError> {
    let head = TableHead::read(&mut open(path)?, path)?;
    Ok(processes(&head, &vec![None; head.instances.len()]))
}

fn open(path: &Path) -> Result<TableLines<BufReader<File>>, TranslateError> {
    let file = open_input(path).map_err(|source| TranslateError::io(path, source))?;
    Ok(TableLines::new(BufReader::with_capacity(1 << 18, file)))
}

fn processes(head: &TableHead, seen: &[SeenTimes]) -> Vec<Process> {
    (1..)
        .zip(head.instances.iter().zip(seen))
        .map(|(source, (instance, seen))| {
            let (first_seen, last_seen) = (seen.map_or(0, |(first, _)| first), seen.map(|(_, last)| last));
            let node = Node { hostname: instance.clone(), ..Node::default() };
            let node = node_of_file(node, (0, first_seen));
            Process {
                source,
                first_seen,
                last_seen,
                command: COMMAND.to_owned(),
                ..Process::of_file(node, Clock::Realtime)
            }
        })
        .collect()
}
