//! Who a process is in its job, by its command line and environment, and what of these must not be
//! recorded. Used on the live environment by the collector, and on recorded ones when files are merged.

mod node;
mod privacy;
mod rank;

/// Where the rank is from of a process that torch.multiprocessing has spawned and that joined a process group.
pub const SPAWNED_MEMBER: &str = "torch.distributed, spawned";

pub use node::{boot_of_machine, is_no_name, node_of_file, unknown_boot, unnamed_node};
pub use privacy::{
    is_secret_name, is_secret_variable, masked_command, masked_environment, masked_line, masked_text,
    masked_value, masked_variable,
};
pub use rank::{RankIdentity, detect_rank, is_rank_variable};
