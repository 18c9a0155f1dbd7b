//! Writes the rows of one process from the elements of arrays.

use crate::known::ReferredRows;
use crate::scan::{JsonScanner, ScanError, ScanFault};
use crate::source::JsonSource;
use crate::survey::ArraySection;
use rpd_shard::WriteError;
use rpd_shard::model::row_types::{StringId, TableRow};
use rpd_shard::model::{TableId, rocpd};
use rpd_shard::record::{Loss, LossCause};
use rpd_translator::{TranslateError, Translator};

/// The array of counted dispatches.
pub(crate) const COUNTERS: &str = "callback_records.counter_collection";

/// The reason why an element yields no row, or not all its rows.
#[derive(Debug)]
pub(crate) enum ElementError {
    /// The element is malformed, for this reason.
    Bad(String),
    /// There are too many elements of its kind.
    OverLimit,
    /// The shard cannot be written.
    Write(WriteError),
}

impl From<WriteError> for ElementError {
    fn from(error: WriteError) -> ElementError {
        match error {
            WriteError::TextTooLong { .. } => ElementError::Bad(error.to_string()),
            error => ElementError::Write(error),
        }
    }
}

impl From<serde_json::Error> for ElementError {
    fn from(error: serde_json::Error) -> ElementError {
        ElementError::Bad(error.to_string())
    }
}

/// The rows of one process.
pub(crate) struct ProcessOutput<'s> {
    pub(crate) translator: Translator<'s>,
    /// Number of the process in the shard.
    pub(crate) source: u32,
    /// Rows of the process to which others refer.
    pub(crate) known: ReferredRows,
}

impl ProcessOutput<'_> {
    /// Writes a row; returns its key.
    pub(crate) fn row<R: TableRow>(&mut self, row: &R) -> Result<R::Key, ElementError> {
        Ok(self.translator.row(self.source, row)?)
    }

    /// Returns the id of a string.
    pub(crate) fn string(&mut self, text: &str) -> Result<StringId, ElementError> {
        Ok(self.translator.string(text.as_bytes())?)
    }

    pub(crate) fn warn(&mut self, warning: String) {
        self.translator.warn(warning);
    }

    /// Counts elements of an array that yield no row.
    pub(crate) fn lose(&mut self, array: &str, cause: LossCause, rows: Option<u64>) {
        self.translator.lose(array, Loss { source: self.source, table: table_of(array), cause, rows });
    }

    /// Passes the elements of the array `name` to `take`, one after another, and counts those that `take` rejects,
    /// or that have more than `max_bytes`.
    pub(crate) fn each(
        &mut self,
        scanner: &mut JsonScanner<JsonSource>,
        name: &str,
        max_bytes: usize,
        section: ArraySection,
        mut take: impl FnMut(&mut Self, &[u8]) -> Result<(), ElementError>,
    ) -> Result<(), TranslateError> {
        if section.elements == 0 {
            return Ok(());
        }
        let mut bytes = Vec::new();
        let mut done = 0;
        let mut refused = 0;
        let mut walk = || -> Result<(), ReadStop> {
            scanner.go_to(section.offset)?;
            scanner.open_array()?;
            while done < section.elements {
                let at = scanner.offset();
                let fits = scanner.value(&mut bytes, max_bytes)?;
                done += 1;
                let taken = if fits {
                    take(self, &bytes)
                } else {
                    Err(ElementError::Bad(format!("it has more than {max_bytes} bytes")))
                };
                let (cause, reason) = match taken {
                    Ok(()) => (None, String::new()),
                    Err(ElementError::Bad(reason)) => (Some(LossCause::BadRecord), reason),
                    Err(ElementError::OverLimit) => {
                        (Some(LossCause::OverLimit), "there are too many".to_owned())
                    }
                    Err(ElementError::Write(error)) => return Err(ReadStop::Write(error)),
                };
                if let Some(cause) = cause {
                    self.lose(name, cause, Some(1));
                    if refused == 0 {
                        self.warn(format!("an element of {name} at byte {at} is left out: {reason}"));
                    }
                    refused += 1;
                }
                if done < section.elements {
                    scanner.another_element()?;
                }
            }
            Ok(())
        };
        match walk() {
            Ok(()) => {}
            Err(ReadStop::Write(error)) => return Err(error.into()),
            // The survey found the array complete.
            Err(ReadStop::Scan(ScanError { offset, fault })) => {
                let left = section.elements - done;
                self.lose(name, LossCause::Truncated, Some(left));
                let what = match fault {
                    ScanFault::Io(_) => "cannot be read again",
                    _ => "changed while it was read",
                };
                self.warn(format!("{name} {what}, at byte {offset}: {fault}; {left} lost"));
            }
        }
        if refused > 1 {
            self.warn(format!("{refused} elements of {name} are left out"));
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum ReadStop {
    Scan(#[from] ScanError),
    Write(WriteError),
}

/// Returns the table for the records of an array.
fn table_of(array: &str) -> Option<TableId> {
    match array.strip_prefix("buffer_records.").unwrap_or(array) {
        "agents" => Some(rocpd::INFO_AGENT),
        "counters" => Some(rocpd::INFO_PMC),
        "code_objects" => Some(rocpd::INFO_CODE_OBJECT),
        "kernel_symbols" => Some(rocpd::INFO_KERNEL_SYMBOL),
        COUNTERS => Some(rocpd::PMC_EVENT),
        "kernel_dispatch" => Some(rocpd::KERNEL_DISPATCH),
        "memory_copy" => Some(rocpd::MEMORY_COPY),
        "memory_allocation" | "scratch_memory" => Some(rocpd::MEMORY_ALLOCATE),
        api if api.ends_with("_api") && !api.starts_with("strings.") => Some(rocpd::REGION),
        _ => None,
    }
}
