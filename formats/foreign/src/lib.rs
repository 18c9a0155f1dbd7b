//! Detects the format of a foreign file, and translates any foreign file to a shard.
//!
//! The collector does this for the files that a profiler left in its scratch folder, and the merge for files that
//! the user names. Each format has its own crate.

mod format;
mod head;
mod json_head;
mod known_but_refused;
mod notes;
mod origin;
mod packed;

pub use format::{Format, format_of};
pub use known_but_refused::{contains_environment, holds_less};
pub use notes::ForeignNotes;
pub use origin::{holds_profile, may_be_profile};
pub use packed::why_packed;

use rpd_shard::file::Owner;
use std::io::Write;
use std::path::Path;

/// Writes a foreign file as a shard. Returns the notes for the user. The error is one line.
pub fn translate(
    path: &Path,
    format: Format,
    sink: &mut dyn Write,
    owner: &Owner,
) -> Result<ForeignNotes, String> {
    let mut notes = ForeignNotes::of(path);
    match format {
        Format::LegacyRpd => notes.legacy(path, sink, owner)?,
        Format::Rocprofv3Json => notes.adopt(rpd_rocprofv3::translate(path, sink, owner))?,
        Format::Kineto => notes.adopt(rpd_kineto::translate(path, sink, owner))?,
        Format::PerfettoTrace => notes.adopt(rpd_perfetto::read::translate(path, sink, owner))?,
        Format::OmnistatCsv => notes.adopt(rpd_omnistat::translate(path, sink, owner))?,
        Format::Shard => return Err(format!("{} is a shard already", path.display())),
        Format::RocPd => notes.adopt(rpd_rocpd::translate(path, sink, owner))?,
    }
    Ok(notes)
}
