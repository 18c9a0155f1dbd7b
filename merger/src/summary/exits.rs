//! Summary lines about exits of commands and processes.

use super::MergeReport;
use crate::input::survey::{ProcessCrash, exits_line};

impl MergeReport {
    /// Returns the line about all commands; `None` if all succeeded, or if the crash line of the only command says
    /// more.
    pub(super) fn exits_line(&self) -> Option<String> {
        match (self.commands_ended.as_slice(), self.crashes.as_slice()) {
            ([only], [death]) if only.is_of(death) => None,
            (exits, _) => exits_line(exits),
        }
    }

    /// Returns the lines of crashed processes that the line of all commands does not cover.
    pub(super) fn death_lines(&self) -> Vec<String> {
        let single = self.crashes.iter().filter(|death| !self.stopped.names(death));
        let mut lines: Vec<String> = single.map(ProcessCrash::line).collect();
        let mut reported = lines.len() as u64;
        for (count, line) in self.stopped.lines() {
            reported += count;
            lines.extend(line);
        }
        if let Some(more @ 1..) = self.crashed.checked_sub(reported) {
            lines.push(format!("and {more} more"));
        }
        lines
    }
}
