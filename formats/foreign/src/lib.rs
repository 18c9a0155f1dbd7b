//! Finds out which format a foreign file has, and reads any foreign file as a shard.
//!
//! The collector does this with what a profiler left in its scratch folder, the merge with what
//! somebody names. Each format has a crate of its own; here is what they have in common.

mod format;
mod head;
mod json_head;
mod known_but_refused;
mod notes;
mod origin;
mod packed;

pub use format::{Format, format_of};
pub use known_but_refused::{holds_less, tells_environment};
pub use notes::ForeignNotes;
pub use origin::{holds_profile, may_be_profile};
pub use packed::why_packed;

use rpd_shard::file::Owner;
use std::io::Write;
use std::path::Path;

/// Writes a foreign file as a shard; returns the sink and the notes for the user. An error is one line.
pub fn translate<W: Write>(
    path: &Path,
    format: Format,
    sink: W,
    owner: &Owner,
) -> Result<(W, ForeignNotes), String> {
    let mut account = ForeignNotes::of(path);
    let sink = match format {
        Format::LegacyRpd => notes::legacy(path, sink, owner, &mut account)?,
        Format::Rocprofv3Json => notes::rocprofv3(path, sink, owner, &mut account)?,
        Format::Kineto => notes::kineto(path, sink, owner, &mut account)?,
        Format::PerfettoTrace => notes::perfetto(path, sink, owner, &mut account)?,
        Format::OmnistatCsv => notes::omnistat(path, sink, owner, &mut account)?,
        Format::Shard => return Err(format!("{} is a shard already", path.display())),
        Format::RocPd => notes::rocpd(path, sink, owner, &mut account)?,
    };
    Ok((sink, account))
}
