//! Writes a foreign file as a shard: `translate FILE OUTPUT_SHARD`. Prints warnings and notes to standard error.
//! The run id is constant, so that the shards of two builds can be compared byte by byte.

use rpd_foreign::{format_of, translate};
use rpd_shard::file::Owner;
use rpd_shard::record::RunIdentity;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(input), Some(output)) = (paths.next(), paths.next()) else {
        return Err("expected two arguments: FILE OUTPUT_SHARD".into());
    };
    let format = format_of(&input)?;
    let (run_id, run_id_from, version) = ("example".into(), "self".into(), "0".into());
    let run = RunIdentity { run_id, run_id_from, rank: None, size: None, version };
    let mut sink = BufWriter::new(File::create(output)?);
    let notes = translate(&input, format, &mut sink, &Owner::unknown(run))?;
    sink.flush()?;
    notes.warnings.iter().chain(&notes.notes).for_each(|line| eprintln!("{line}"));
    Ok(())
}
