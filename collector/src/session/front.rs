//! A profiler in front of the command: it starts the command, or the command is started without it.

use super::variables;
use crate::backend::Plan;
use crate::backend::start::{self, Started};
use crate::child;
use crate::child::preload::PreloadError;
use crate::command_line::Options;
use crate::warn;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

/// What it takes to start it.
pub(super) struct Front {
    words: Vec<OsString>,
    /// Where the command leaves its mark.
    scratch: PathBuf,
    wait: Duration,
    /// What the command finds in its environment without the profiler.
    without: Vec<(String, OsString)>,
}

impl Front {
    /// Takes the words out of the plan; `None` where no profiler stands in front of the command.
    pub(super) fn of(
        plan: &mut Plan,
        options: &Options,
        socket: &str,
    ) -> Result<Option<Front>, PreloadError> {
        let (Some(harvest), false) = (&plan.harvest, plan.front.is_empty()) else { return Ok(None) };
        let (scratch, wait) = (PathBuf::from(&harvest.scratch), Duration::from_secs(harvest.wait_seconds));
        let mut words = std::mem::take(&mut plan.front);
        words.extend(start::words(&scratch, plan.ends_early));
        let bare = Plan { native: plan.native, ..Plan::default() };
        Ok(Some(Front { words, scratch, wait, without: variables(options, &bare, socket)? }))
    }

    /// Starts the command, once, whatever the profiler does.
    pub(super) fn start(&self, command: &[OsString], variables: &[(String, OsString)]) -> Result<Child, i32> {
        let whole: Vec<OsString> = self.words.iter().chain(command).cloned().collect();
        let why = match child::start(&whole, variables) {
            Err(_) => "cannot be started".to_owned(),
            Ok(mut child) => match start::wait(&mut child, &self.scratch, self.wait) {
                Started::Yes => return Ok(child),
                Started::Ended(status) => format!("ended before it started the command ({status})"),
                Started::TooLong => {
                    format!("did not start the command within {} s, and was killed", self.wait.as_secs())
                }
            },
        };
        let name = self.words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        warn(format_args!(
            "warning: {name} {why}: the command runs without it; try it by hand on this node, or use --backend native"
        ));
        child::start(command, &self.without)
    }
}
