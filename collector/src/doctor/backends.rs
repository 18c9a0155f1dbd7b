//! Profilers: prepared as for a run, in a folder that goes again.

use super::Finding;
use crate::backend::{self, BackendChoice, BackendKind, BackendPlan, ResolvedBackends, scratch};
use crate::command_line::CollectOptions;
use crate::session::{SessionIdentity, announced};
use std::path::Path;

/// What a run would start the command with. Removes what was made for it on the node.
pub(super) struct PreparedBackends {
    pub(super) plan: BackendPlan,
    /// Those that are there.
    pub(super) usable: Vec<BackendKind>,
    /// Why, where nobody has named them.
    why: Option<String>,
    /// What records what, where `auto` found a GPU.
    announced: Option<String>,
}

impl PreparedBackends {
    /// Finds the profilers, and asks them for their versions.
    pub(super) fn of(options: &CollectOptions, identity: &SessionIdentity) -> PreparedBackends {
        let asked = options.asked();
        let is_recorded = options.ranks.clone().unwrap_or_default().contains(identity.rank.rank);
        let plan = backend::plan(&asked, &identity.label(), is_recorded);
        let ResolvedBackends { backends: mut usable, reason, .. } = asked.choice.resolve(asked.library);
        let prepared = |backend: &BackendKind| {
            let mut harvested = plan.harvest.iter().flat_map(|harvest| &harvest.backends);
            harvested.any(|name| name == backend.name())
        };
        usable.retain(|backend| *backend == BackendKind::Native || !is_recorded || prepared(backend));
        let announced = announced(options, &plan).filter(|_| is_recorded);
        PreparedBackends { plan, usable, why: reason, announced }
    }

    /// Whether what is asked for is there, and goes together.
    pub(super) fn check(&self, options: &CollectOptions) -> Vec<Finding> {
        if let Err(error) = options.check() {
            return vec![Finding::problem(error, "a run refuses this, and starts no command")];
        }
        let lines = self.plan.said.iter().chain(&self.announced);
        let mut findings: Vec<Finding> = lines.map(|line| finding(line)).collect();
        if findings.is_empty() {
            findings.push(self.why.as_deref().map_or_else(|| Finding::Ok(self.names()), finding));
        }
        findings
    }

    /// The names of those that are there.
    pub(super) fn names(&self) -> String {
        BackendChoice::These(self.usable.clone()).to_string()
    }

    /// What is recorded, and by whom.
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

/// From a line for the log: its last part is what to do.
fn finding(line: &str) -> Finding {
    let Some(warning) = line.strip_prefix("warning: ") else {
        return Finding::Ok(line.trim_start_matches("backend ").to_owned());
    };
    match warning.rsplit_once("; ").or_else(|| warning.rsplit_once(": ")) {
        Some((what, next)) => Finding::problem(what, next),
        None => Finding::problem(warning, "see docs/BACKENDS.md"),
    }
}
