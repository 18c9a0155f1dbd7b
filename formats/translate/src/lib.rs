//! Files of profilers, told apart by what is in them and read as shards.
//!
//! The collector does this with what a profiler left in its scratch folder, the merge with what
//! somebody names. Each format has a crate of its own; here is what they have in common.

mod account;
mod format;
mod head;
mod json_head;
mod origin;
mod packed;
mod refused;

pub use account::Account;
pub use format::{Format, format_of};
pub use origin::{holds_profile, may_be_profile};
pub use packed::why_packed;
pub use refused::{holds_less, tells_environment};

use rpd_shard::file::Owner;
use std::io::Write;
use std::path::Path;

/// Writes what a file holds as a shard; returns the sink and what is to be said. An error is told in one line.
pub fn translate<W: Write>(
    path: &Path,
    format: Format,
    sink: W,
    owner: &Owner,
) -> Result<(W, Account), String> {
    let mut account = Account::of(path);
    let sink = match format {
        Format::LegacyRpd => account::legacy(path, sink, owner, &mut account)?,
        Format::Rocprofv3Json => account::rocprofv3(path, sink, owner, &mut account)?,
        Format::Kineto => account::kineto(path, sink, owner, &mut account)?,
        Format::PerfettoTrace => account::perfetto(path, sink, owner, &mut account)?,
        Format::OmnistatCsv => account::omnistat(path, sink, owner, &mut account)?,
        Format::Shard => return Err(format!("{} is a shard already", path.display())),
        Format::RocPd => account::rocpd(path, sink, owner, &mut account)?,
    };
    Ok((sink, account))
}
