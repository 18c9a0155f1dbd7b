//! Run and rank of this collector, and where its shard goes.

use crate::command_line::CollectOptions;
use crate::launcher::{self, LauncherEnvironment, RankIdentity, RunId};
use crate::log::warn;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Run and rank of this collector, and where its shard goes.
#[derive(Debug)]
pub(crate) struct SessionIdentity {
    /// Rank, and its origin.
    pub rank: RankIdentity,
    /// The run.
    pub run: RunId,
    /// Names of empty files in the folder of the run, by which scripts find the run.
    pub marks: Vec<String>,
    /// Output root, absolute.
    pub root: PathBuf,
}

impl SessionIdentity {
    /// Determines run and rank from the options and the launcher's variables. `random` is for the name of a
    /// run without a launcher.
    pub(crate) fn detect(
        options: &CollectOptions,
        environment: &LauncherEnvironment,
        random: u128,
    ) -> SessionIdentity {
        let rank = launcher::detect_rank(environment, options.rank_env.as_deref());
        if let Some(name) = options.rank_env.as_deref().filter(|name| environment.number(name).is_none()) {
            warn(format_args!(
                "warning: --rank-env names {name}, which does not hold a number; the rank comes from another variable, or there is none"
            ));
        }
        let run = launcher::detect_run_id(options.run_id.as_deref(), environment, launcher::hydra_job)
            .unwrap_or_else(|| launcher::lone_run_id(SystemTime::now(), std::process::id(), random as u32));
        let root = options.output.as_deref().unwrap_or(Path::new("rpd-out"));
        // Another process creates the file later, so the path must not depend on the current folder.
        let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        SessionIdentity { marks: launcher::slurm_marks(environment, &run), rank, run, root }
    }

    /// Returns a name for a folder of this rank on its node.
    pub(crate) fn label(&self) -> String {
        let rank = self.rank.rank.map_or("none".to_owned(), |rank| format!("{rank:05}"));
        let run: String = self.run.id.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
        format!("{run}-{rank}")
    }

    /// Whether this rank prints the messages that concern all ranks.
    pub(crate) fn prints_for_all(&self) -> bool {
        self.rank.rank.is_none_or(|rank| rank == 0)
    }
}
