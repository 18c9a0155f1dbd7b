//! Identity of a process in its job, and masking of secrets.
//!
//! The rank is detected from the environment. Secrets are masked in command lines and variables. The collector
//! applies both to the live environment; a merge applies them to recorded environments.

mod node;
mod privacy;
mod rank;

/// Value of `rank_from` for a process that torch.multiprocessing spawned and that joined a process group.
pub const SPAWNED_MEMBER: &str = "torch.distributed, spawned";

pub use node::{boot_of_machine, is_no_name, node_of_file, unknown_boot, unnamed_node};
pub use privacy::{
    is_secret_name, is_secret_variable, masked_command, masked_environment, masked_line, masked_text,
    masked_value, masked_variable,
};
pub use rank::{RankIdentity, detect_rank, is_rank_variable};
