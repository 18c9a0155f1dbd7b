//! Checks the profilers: prepares them as for a run, in a temporary scratch folder.

use super::finding::CheckFinding;
use crate::backend::{self, BackendChoice, BackendKind, BackendPlan, ResolvedBackends, scratch};
use crate::command_line::CollectOptions;
use crate::session::{SessionIdentity, announced};
use std::path::Path;

/// The plan of a run. Removes its scratch folder when dropped.
pub(super) struct PreparedBackends {
    pub(super) plan: BackendPlan,
    /// Backends that can be used.
    pub(super) usable: Vec<BackendKind>,
    /// The reason for them, if the user named none.
    why: Option<String>,
    /// The line about what records what, if `auto` found a GPU.
    announced: Option<String>,
}

impl PreparedBackends {
    /// Finds the profilers and queries their versions.
    pub(super) fn of(options: &CollectOptions, identity: &SessionIdentity) -> PreparedBackends {
        let backend_request = options.backend_request();
        let is_recorded = options.selected_ranks().contains(identity.rank.rank);
        let plan = backend::plan(&backend_request, &identity.label(), is_recorded);
        let ResolvedBackends { backends: mut usable, reason, .. } =
            backend_request.choice.resolve(backend_request.library);
        let prepared = |backend: &BackendKind| {
            plan.harvest.as_ref().is_some_and(|harvest| harvest.backends.contains(backend))
        };
        usable.retain(|backend| *backend == BackendKind::Native || !is_recorded || prepared(backend));
        let announced = announced(options, &plan).filter(|_| is_recorded);
        PreparedBackends { plan, usable, why: reason, announced }
    }

    /// Checks whether the requested backends exist and fit together.
    pub(super) fn check(&self, options: &CollectOptions) -> Vec<CheckFinding> {
        if let Err(error) = options.check() {
            return vec![CheckFinding::problem(error, "a run refuses this, and starts no command")];
        }
        let lines = self.plan.notes.iter().chain(&self.announced);
        let mut findings: Vec<CheckFinding> = lines.map(|line| finding(line)).collect();
        if findings.is_empty() {
            findings.push(self.why.as_deref().map_or_else(|| CheckFinding::Ok(self.names()), finding));
        }
        findings
    }

    /// Returns the names of the usable backends.
    pub(super) fn names(&self) -> String {
        BackendChoice::These(self.usable.clone()).to_string()
    }

    /// Describes which backend records what.
    pub(super) fn recorded(&self, options: &CollectOptions) -> String {
        let trace = options.recorded(&self.plan);
        let each = self.usable.iter().map(|backend| match backend {
            BackendKind::Native => trace.to_string(),
            other => format!("what {} records", other.name()),
        });
        match each.collect::<Vec<_>>() {
            nothing if nothing.is_empty() => "identity and clocks alone".to_owned(),
            each => each.join(", and "),
        }
    }
}

impl Drop for PreparedBackends {
    fn drop(&mut self) {
        if let Some(harvest) = &self.plan.harvest {
            scratch::remove(Path::new(&harvest.scratch));
        }
    }
}

/// Splits a line for the log: its last part is the next step.
fn finding(line: &str) -> CheckFinding {
    let Some(warning) = line.strip_prefix("warning: ") else {
        return CheckFinding::Ok(line.trim_start_matches("backend ").to_owned());
    };
    match warning.rsplit_once("; ").or_else(|| warning.rsplit_once(": ")) {
        Some((what, next)) => CheckFinding::problem(what, next),
        None => CheckFinding::problem(warning, "see docs/BACKENDS.md"),
    }
}
