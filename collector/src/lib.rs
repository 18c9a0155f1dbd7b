//! The per-rank collector: runs a command and writes what its processes report into a shard.
//!
//! Two processes: one starts the command, passes signals on and ends as it does; the other collects.
//!
//! ```text
//! traced threads --rings--> collect (one thread) --batches--> output (one thread) --> shard
//! ```
//!
//! * [`command_line`]: what was typed.
//! * [`launcher`]: which run, which rank: from the launcher's variables.
//! * [`session`]: the whole of one run, from the socket to the exit status, in two processes.
//! * [`backend`]: profilers that run the command, or inside of it, and what becomes of their files.
//! * [`child`]: the command: starting it, its library, its signals, its end.
//! * [`collect`]: rings in, rows out.
//! * [`output`]: rows in, shard out.
//! * [`system`]: counters of the node.
//! * [`probe`]: the clocks of nodes against each other.
//! * [`host`]: this node: its clocks, the memory that the job may have, one collector per node for what needs to be done once.
//! * [`cpus`]: the CPUs that the collector runs on.
//! * `program`: the command, looked at without running it.
//! * [`log`]: where the collector says what there is to say.
//! * [`doctor`]: what would happen, and whether everything is there that it takes.

pub mod backend;
pub mod child;
pub mod collect;
pub mod command_line;
pub mod cpus;
pub mod doctor;
pub mod host;
pub mod launcher;
pub mod log;
pub mod output;
pub mod probe;
mod program;
pub mod session;
pub mod system;

use std::io::Write;

/// `EMFILE`
pub(crate) const TOO_MANY_FILES: i32 = 24;

/// What to do about an error of the system, behind its text; empty where that says enough.
pub fn next_step(error: &std::io::Error) -> &'static str {
    const TOO_MANY_PROCESSES: i32 = 11;
    match error.raw_os_error() {
        Some(TOO_MANY_FILES) => "; raise the limit with `ulimit -n 64` or more",
        Some(TOO_MANY_PROCESSES) => "; raise the limit of processes and threads, `ulimit -u`",
        _ => "",
    }
}

/// One line: in the collector process into the log of its rank, else on stderr. A closed stderr is no
/// reason to fail, and stdout belongs to the command.
pub fn warn(text: std::fmt::Arguments<'_>) {
    if !log::say(text) {
        let _ = writeln!(std::io::stderr(), "rpd-collect: {text}");
    }
}
