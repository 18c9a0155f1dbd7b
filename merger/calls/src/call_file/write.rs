//! Writes the calls of a run as they are found, a few units at a time.

use super::{CallFile, FORMAT, MAGIC, database_state};
use crate::region_names::RegionNames;
use crate::thread_calls::ReadPart;
use crate::unit_calls::UnitCalls;
use crate::unit_rows::UnitRows;
use rayon::prelude::*;
use rpd_console::Failure;
use rpd_files::{create_output, open_input};
use rpd_run::RunDatabase;
use rpd_shard::record::wire;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use zstd::bulk::Compressor;

/// Level of compression: the lowest, as the file is read more often than it is copied.
const LEVEL: i32 = 1;
/// Mode of the new file.
const MODE: u32 = 0o600;

impl CallFile {
    /// Writes the calls of a run into a new file, at most `at_once` units at a time. A file that could not be completed
    /// is left to the caller.
    ///
    /// # Errors
    /// [`Failure::input`], if rows cannot be read, and failures of writing.
    pub fn write(path: &Path, run: &RunDatabase, at_once: usize) -> Result<(), Failure> {
        let names = RegionNames::new(&run.strings);
        let cannot = |error: io::Error| Failure::write(path, &error);
        let not_one = || Failure::internal("a file of calls is written for a database only");
        let stored = run.tables.database().ok_or_else(not_one)?;
        let database = open_input(stored.path()).map_err(cannot)?;
        let mut file = BufWriter::new(create_output(path, MODE).map_err(cannot)?);
        let state = database_state(&database, stored.table_sets()).map_err(cannot)?;
        file.write_all(&header(state, run.units.len())).map_err(cannot)?;
        for units in run.units.chunks(at_once.max(1)) {
            let stored = units.par_iter().map(|unit| {
                let calls =
                    UnitCalls::new(UnitRows::read(run, unit, &names, None)?, &names, ReadPart::whole());
                encode(&calls).map_err(cannot)
            });
            let stored: Vec<Vec<u8>> = stored.collect::<Result<_, Failure>>()?;
            stored.iter().try_for_each(|unit| file.write_all(unit)).map_err(cannot)?;
        }
        let file = file.into_inner().map_err(|error| cannot(error.into_error()))?;
        file.sync_all().map_err(cannot)
    }
}

fn header(state: u128, units: usize) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend(FORMAT.to_le_bytes());
    header.extend(state.to_le_bytes());
    header.extend((units as u64).to_le_bytes());
    header
}

/// Encodes the calls of a unit, with the lengths before them.
fn encode(calls: &UnitCalls) -> io::Result<Vec<u8>> {
    let decoded = wire::encode(calls);
    let mut compressor = Compressor::new(LEVEL)?;
    compressor.include_checksum(true)?;
    let frame = compressor.compress(&decoded)?;
    let lengths = [frame.len(), decoded.len()].map(|length| (length as u64).to_le_bytes());
    Ok([lengths.as_flattened(), &frame].concat())
}
