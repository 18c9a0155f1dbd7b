//! The lines of the summary about how commands and processes ended.

use super::MergeReport;
use crate::input::command_endings::endings_line;
use crate::input::death::ProcessCrash;

impl MergeReport {
    /// How all commands ended; `None` if all ended well, or if the line of the only one that there is says more.
    pub(super) fn endings_line(&self) -> Option<String> {
        match (self.commands_ended.as_slice(), self.crashes.as_slice()) {
            ([only], [death]) if only.is_of(death) => None,
            (endings, _) => endings_line(endings),
        }
    }

    /// Lines of processes that died, beside the line of all commands.
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
