//! A profiler in front of the command: it starts the command, or the command is started without it.

use crate::backend::Plan;
use crate::backend::start::{self, Started};
use crate::child::{self, Ending};
use crate::warn;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

/// Signals that end a job: a profiler that died of one was not at fault.
const CANCELS: [i32; 8] = [1, 2, 3, 9, 10, 12, 15, 24];

/// What it takes to start it.
pub(super) struct Front {
    words: Vec<OsString>,
    /// Where the command leaves its mark.
    scratch: PathBuf,
    wait: Duration,
}

/// The command runs.
pub(super) struct Running {
    pub(super) child: Child,
    /// Why it runs without the profiler.
    pub(super) without: Option<String>,
}

impl Front {
    /// Takes the words out of the plan; `None` where no profiler stands in front of the command.
    pub(super) fn of(plan: &mut Plan) -> Option<Front> {
        let (Some(harvest), false) = (&plan.harvest, plan.front.is_empty()) else { return None };
        let (scratch, wait) = (PathBuf::from(&harvest.scratch), Duration::from_secs(harvest.wait_seconds));
        let mut words = std::mem::take(&mut plan.front);
        words.extend(start::words(&scratch, plan.ends_early));
        Some(Front { words, scratch, wait })
    }

    /// Starts the command, once, whatever the profiler does. Who ends the job while the profiler starts ends the
    /// command with it.
    pub(super) fn start(
        &self,
        command: &[OsString],
        variables: &[(String, OsString)],
    ) -> Result<Running, Ending> {
        let whole: Vec<OsString> = self.words.iter().chain(command).cloned().collect();
        let why = match child::start(&whole, variables) {
            Err(_) => "cannot be started".to_owned(),
            Ok(mut child) => match start::wait(&mut child, &self.scratch, self.wait) {
                Started::Yes => return Ok(Running { child, without: None }),
                Started::Ended(status) => match Ending::from(status) {
                    Ending::Signal(signal) if CANCELS.contains(&signal) => {
                        return Err(Ending::Signal(signal));
                    }
                    _ => format!("ended before it started the command ({status})"),
                },
                Started::TooLong => {
                    format!("did not start the command within {} s, and was killed", self.wait.as_secs())
                }
            },
        };
        let name = self.words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        let without = format!(
            "warning: {name} {why}: the command runs without it; try it by hand on this node, or use --backend native"
        );
        warn(format_args!("{without}"));
        let child = child::start(command, variables).map_err(Ending::Code)?;
        Ok(Running { child, without: Some(without) })
    }
}
