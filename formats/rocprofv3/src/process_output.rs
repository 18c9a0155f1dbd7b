//! The rows of one process, read from the elements of arrays.

use crate::scan::{Fault, ScanError, Scanner};
use crate::source::Source;
use crate::survey::Section;
use rpd_shard::WriteError;
use rpd_shard::model::TableId;
use rpd_shard::model::row_types::{StringId, TableRow};
use rpd_shard::record::{Loss, LossCause};
use rpd_translator::{TranslateError, Translator};
use std::io::Write;

/// Why an element yields no row, or not all of them.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It does not make sense.
    Bad(String),
    /// There are too many of its kind.
    OverLimit,
    /// The shard cannot be written.
    Write(WriteError),
}

impl From<WriteError> for Refused {
    fn from(error: WriteError) -> Refused {
        match error {
            WriteError::TextTooLong { .. } => Refused::Bad(error.to_string()),
            error => Refused::Write(error),
        }
    }
}

impl From<serde_json::Error> for Refused {
    fn from(error: serde_json::Error) -> Refused {
        Refused::Bad(error.to_string())
    }
}

/// The rows of one process.
pub(crate) struct ProcessOutput<'a, W: Write> {
    pub(crate) translator: &'a mut Translator<W>,
    /// Number of the process in the shard.
    pub(crate) source: u32,
}

impl<W: Write> ProcessOutput<'_, W> {
    /// Adds a row; returns its key.
    pub(crate) fn row<R: TableRow>(&mut self, row: &R) -> Result<R::Key, Refused> {
        Ok(self.translator.row(self.source, row)?)
    }

    /// The id of a string.
    pub(crate) fn string(&mut self, text: &str) -> Result<StringId, Refused> {
        Ok(self.translator.string(text.as_bytes())?)
    }

    pub(crate) fn warn(&mut self, warning: String) {
        self.translator.warn(warning);
    }

    /// Counts elements of an array that are in no row.
    pub(crate) fn lose(&mut self, array: &str, table: Option<TableId>, cause: LossCause, rows: Option<u64>) {
        self.translator.lose(array, Loss { source: self.source, table, cause, rows });
    }

    /// Hands the elements of an array to `take`, one after the other, and counts those that it refuses.
    pub(crate) fn each(
        &mut self,
        scanner: &mut Scanner<Source>,
        array: &Array<'_>,
        section: Section,
        mut take: impl FnMut(&mut Self, &[u8]) -> Result<(), Refused>,
    ) -> Result<(), TranslateError> {
        let &Array { name, table, most } = array;
        if section.elements == 0 {
            return Ok(());
        }
        let mut bytes = Vec::new();
        let mut done = 0;
        let mut refused = 0;
        let mut walk = || -> Result<(), Stop> {
            scanner.go_to(section.offset)?;
            scanner.open_array()?;
            while done < section.elements {
                let at = scanner.offset();
                let fits = scanner.value(&mut bytes, most)?;
                done += 1;
                let taken = if fits {
                    take(self, &bytes)
                } else {
                    Err(Refused::Bad(format!("it has more than {most} bytes")))
                };
                let (cause, reason) = match taken {
                    Ok(()) => (None, String::new()),
                    Err(Refused::Bad(reason)) => (Some(LossCause::BadRecord), reason),
                    Err(Refused::OverLimit) => (Some(LossCause::OverLimit), "there are too many".to_owned()),
                    Err(Refused::Write(error)) => return Err(Stop::Write(error)),
                };
                if let Some(cause) = cause {
                    self.lose(name, table, cause, Some(1));
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
            Err(Stop::Write(error)) => return Err(error.into()),
            // It was whole a moment ago.
            Err(Stop::Scan(ScanError { offset, fault })) => {
                let left = section.elements - done;
                self.lose(name, table, LossCause::Truncated, Some(left));
                let what = match fault {
                    Fault::Io(_) => "cannot be read again",
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

/// An array of the file.
pub(crate) struct Array<'a> {
    /// Its path.
    pub(crate) name: &'a str,
    /// Where its elements go.
    pub(crate) table: Option<TableId>,
    /// Longest element, bytes.
    pub(crate) most: usize,
}

enum Stop {
    Scan(ScanError),
    Write(WriteError),
}

impl From<ScanError> for Stop {
    fn from(error: ScanError) -> Stop {
        Stop::Scan(error)
    }
}
