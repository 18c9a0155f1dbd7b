//! The shard that is written, and the word about it.

use crate::error::TranslateError;
use crate::scan::{Fault, ScanError, Scanner};
use crate::source::Source;
use crate::survey::{Ignored, Section};
use rpd_shard::model::{TableId, Value};
use rpd_shard::record::{Loss, LossCause};
use rpd_shard::{ShardWriter, WriteError};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// Warnings that are told of one file.
const MAX_WARNINGS: usize = 100;

/// What became of a file.
#[derive(Clone, Debug, Default)]
pub struct Translation {
    /// Rows of the shard, per table, of all processes together.
    pub rows: BTreeMap<TableId, u64>,
    /// Elements that made no sense or were too many, by the array that they stood in. They are in the
    /// shard's ledger too.
    pub lost: BTreeMap<String, u64>,
    /// What is in the file and has no place in RocPD, by its path: elements of arrays, or how often.
    pub ignored: BTreeMap<String, u64>,
    /// One line for each thing that is not as it should be.
    pub warnings: Vec<String>,
}

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

/// Writes the rows of one process after the other.
pub(crate) struct Output<'a, W: Write> {
    pub(crate) path: &'a Path,
    pub(crate) shard: ShardWriter<W>,
    /// Number of the process in the shard.
    pub(crate) source: u32,
    pub(crate) rows: BTreeMap<TableId, u64>,
    pub(crate) lost: BTreeMap<String, u64>,
    pub(crate) ignored: Ignored,
    pub(crate) warnings: Vec<String>,
}

impl<W: Write> Output<'_, W> {
    /// Adds a row; returns its key.
    pub(crate) fn push(&mut self, table: TableId, row: &[Value<'_>]) -> Result<i64, Refused> {
        let key = self.shard.push(self.source, table, row)?;
        *self.rows.entry(table).or_default() += 1;
        Ok(key)
    }

    /// The id of a string.
    pub(crate) fn string(&mut self, text: &str) -> Result<Value<'static>, Refused> {
        Ok(Value::Int(self.shard.string(text.as_bytes())?))
    }

    pub(crate) fn warn(&mut self, warning: String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(warning);
        }
    }

    /// Counts elements of an array that are in no row.
    pub(crate) fn lose(&mut self, array: &str, table: Option<TableId>, cause: LossCause, rows: Option<u64>) {
        if let Some(rows) = rows.filter(|rows| *rows > 0) {
            *self.lost.entry(array.to_owned()).or_default() += rows;
        }
        self.shard.loss(Loss { source: self.source, table, cause, rows });
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

    /// The end of the shard.
    pub(crate) fn finish(self) -> Result<(W, Translation), TranslateError> {
        let Output { shard, rows, lost, ignored: Ignored(ignored), mut warnings, path, .. } = self;
        for warning in &mut warnings {
            *warning = format!("{}: {warning}", path.display());
        }
        Ok((shard.finish()?, Translation { rows, lost, ignored, warnings }))
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

/// A number as RocPD stores it: as REAL where it is above `i64::MAX`.
pub(crate) fn number(value: u64) -> Value<'static> {
    i64::try_from(value).map_or(Value::Real(value as f64), Value::Int)
}

/// A number that may be missing.
pub(crate) fn optional(value: Option<u64>) -> Value<'static> {
    value.map_or(Value::Null, number)
}
