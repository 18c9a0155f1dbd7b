//! Reads the calls of a run, from rows or from their file.

use crate::call_file::{CallFile, CallFileError};
use crate::joined_calls::JoinedCalls;
use crate::read_options::ReadOptions;
use crate::region_names::RegionNames;
use crate::run_calls::RunCalls;
use crate::thread_calls::ReadPart;
use crate::unit_calls::UnitCalls;
use crate::unit_rows::UnitRows;
use rayon::prelude::*;
use rpd_console::Failure;
use rpd_run::RunDatabase;

impl RunCalls {
    /// Reads the calls of a run. The result does not depend on the number of threads.
    ///
    /// # Errors
    /// [`Failure::input`], if rows cannot be read or contradict themselves.
    pub fn read(run: &RunDatabase, options: &ReadOptions) -> Result<RunCalls, Failure> {
        let names = RegionNames::new(&run.strings);
        // No class has the number u32::MAX, so that other ranges do not mark steps.
        let class_of = |name: &String| names.class_named(name, &run.strings).unwrap_or(u32::MAX);
        let part = ReadPart {
            window: options.window_ns,
            step_class: options.step.as_ref().map(class_of),
            keeps_row_keys: options.keeps_row_keys,
        };
        let units = run.units.par_iter().map(|unit| {
            let rows = UnitRows::read(run, unit, &names)?;
            Ok(UnitCalls::new(rows, &names, part))
        });
        let units: Vec<UnitCalls> = units.collect::<Result<_, Failure>>()?;
        JoinedCalls::of(run, units)?.finish(&names, options)
    }

    /// Reads the calls of a whole run from their file. They are the same as those in the rows, without the keys of these.
    ///
    /// # Errors
    /// [`CallFileError`], if the file is damaged or the database cannot be read.
    pub fn from_file(run: &RunDatabase, file: &CallFile) -> Result<RunCalls, CallFileError> {
        let names = RegionNames::new(&run.strings);
        let units = file.units(run, &names)?;
        let joined = JoinedCalls::of(run, units)?.finish(&names, &ReadOptions::default());
        joined.map_err(|failure| CallFileError::Contradicting(failure.to_string()))
    }
}
