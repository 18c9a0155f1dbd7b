//! The loss ledger in the report.

use super::words::noun;
use crate::input::lost::LostRows;
use crate::input::schema::JobSchema;
use rpd_shard::record::{Loss, LossCause};
use serde::Serialize;

/// One sum of the loss ledger.
#[derive(Debug, Serialize)]
pub struct LossRow {
    /// The table, where it is known.
    pub table: Option<String>,
    /// Why.
    pub cause: &'static str,
    /// What keeps it from happening again.
    #[serde(skip)]
    next_step: Option<&'static str>,
    /// How many rows; `null` where nobody knows.
    pub rows: Option<u64>,
    /// The file that is lost as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Why it is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl LossRow {
    pub(super) fn line(&self) -> String {
        if let Some(file) = &self.file {
            let reason = self.reason.as_deref().filter(|reason| !reason.is_empty());
            let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
            return format!("all of {file} ({}{reason})", self.cause);
        }
        let table = self.table.as_deref().unwrap_or("unknown tables");
        match self.rows {
            Some(rows) => format!("{rows} {} of {table} ({})", noun(rows, "row"), self.cause),
            None => format!("an unknown number of rows of {table} ({})", self.cause),
        }
    }

    pub(super) fn line_with_next_step(&self) -> String {
        let next_step = self.next_step.map_or(String::new(), |step| format!(": next time, {step}"));
        self.line() + &next_step
    }
}

/// What the user can do about a loss, in terms of the collector's options.
fn next_step(cause: LossCause) -> Option<&'static str> {
    match cause {
        LossCause::RingFull => Some("raise --ring-size"),
        LossCause::NoMemory => Some("raise --ring-memory, or give the job more memory"),
        LossCause::NoSpace => Some("raise --max-size or choose another place with -o DIR"),
        _ => None,
    }
}

pub(super) fn loss_row(loss: &Loss, schema: &JobSchema) -> LossRow {
    let table = loss.table.map(|t| schema.name(t).into_owned());
    let (next_step, rows) = (next_step(loss.cause), loss.rows);
    LossRow { table, cause: loss.cause.name(), next_step, rows, file: None, reason: None }
}

pub(super) fn lost_row(lost: &LostRows) -> LossRow {
    let (file, reason) = lost.file.clone().map(|file| (file.name, file.reason)).unzip();
    let (table, cause) = (lost.table.clone(), lost.cause.name());
    LossRow { table, cause, next_step: None, rows: lost.rows, file, reason }
}
