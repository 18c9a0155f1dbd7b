//! One run of rpd-collect.
//!
//! ```text
//! rpd-collect          starts both, passes signals and the exit status on
//!   |- the command
//!   `- the collector   drains the rings, writes the shard
//! ```
//!
//! With two processes, a collector that is killed, stopped or out of memory affects neither the command nor
//! its exit status.

mod announced;
mod below;
mod busy;
mod collecting;
mod command;
mod command_end;
mod control;
mod empty;
mod front;
mod identity;
mod launch;
mod preloaded;
mod prepare;
mod recorders;
mod run;
mod spawn;
mod start_message;
mod unrecorded;
mod unseen_program;
mod variables;
mod watched;

pub(crate) use announced::announced;
pub(crate) use collecting::main as collect;
pub(crate) use identity::SessionIdentity;
pub(crate) use prepare::CommandSession;
pub(crate) use spawn::COLLECT;
pub(crate) use unrecorded::run_unrecorded;
pub(crate) use variables::variables;
