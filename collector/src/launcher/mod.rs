//! Which run and which rank this is: what the launcher says in its variables.
//!
//! Nothing here reads the environment of this process; it is passed in, since every traced process
//! has one of its own.

mod hydra;
mod run_id;

pub use hydra::hydra_job;
pub use rpd_shard::identity::RankIdentity;
pub use run_id::{RunId, detect_run_id, lone_run_id};

use std::collections::HashMap;

/// Variables by name.
#[derive(Clone, Debug, Default)]
pub struct Environment(HashMap<String, String>);

impl Environment {
    /// The variables of this process. Those that are not UTF-8 are of no interest.
    pub fn of_this_process() -> Environment {
        let utf8 = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Environment(utf8.collect())
    }

    /// A variable that is set to something.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A variable that is a number.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.get(name)?.trim().parse().ok()
    }
}

/// Rank, size and local rank, as the launcher's variables tell; `rank_env` is the variable that the
/// user says has the rank.
pub fn detect_rank(environment: &Environment, rank_env: Option<&str>) -> RankIdentity {
    rpd_shard::identity::detect_rank(|name| environment.get(name), rank_env)
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Environment {
        Environment(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}
