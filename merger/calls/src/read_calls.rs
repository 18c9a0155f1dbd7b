//! Reads the calls of a run, from rows or from their file.

use crate::analysis_memory::NeededMemory;
use crate::call_file::{CallFile, CallFileError};
use crate::joined_calls::JoinedCalls;
use crate::read_options::ReadOptions;
use crate::region_names::RegionNames;
use crate::run_calls::RunCalls;
use crate::thread_calls::ReadPart;
use crate::unit_calls::UnitCalls;
use crate::unit_rows::UnitRows;
use rayon::prelude::*;
use rpd_comm::{Comm, Solo, agree_on_result, gather_values};
use rpd_console::Failure;
use rpd_run::{RowUnit, RunDatabase};

impl RunCalls {
    /// Returns whether a run may have messages: a string names a function of MPI that sends some.
    pub fn may_have_messages(run: &RunDatabase) -> bool {
        RegionNames::new(&run.strings).has_sends()
    }

    /// Reads the calls of a run. The result does not depend on the number of threads.
    ///
    /// # Errors
    /// [`Failure::input`], if rows cannot be read or contradict themselves.
    pub fn read(run: &RunDatabase, options: &ReadOptions) -> Result<RunCalls, Failure> {
        let calls = RunCalls::gather(run, &Solo, options)?;
        calls.ok_or_else(|| Failure::internal("the calls are on another merge rank"))
    }

    /// Reads the calls of the units of each merge rank, and gathers them on rank 0. Returns `None` on other ranks. The
    /// result does not depend on the number of ranks and threads.
    ///
    /// # Errors
    /// As [`RunCalls::read`], and [`Failure::usage`], if the calls take more memory than the options allow. All ranks have
    /// agreed on a failure to read.
    pub fn gather(
        run: &RunDatabase,
        comm: &(impl Comm + ?Sized),
        options: &ReadOptions,
    ) -> Result<Option<RunCalls>, Failure> {
        let names = RegionNames::new(&run.strings);
        // No class has the number u32::MAX, so that other ranges do not mark steps.
        let class_of = |name: &String| names.class_named(name, &run.strings).unwrap_or(u32::MAX);
        let part = ReadPart {
            window: options.window_ns,
            step_class: options.step.as_ref().map(class_of),
            keeps_row_keys: options.keeps_row_keys,
        };
        let needed = NeededMemory::new(run, options.memory);
        let read_unit = |unit: &RowUnit| {
            let calls = UnitCalls::new(UnitRows::read(run, unit, &names, part.window)?, &names, part);
            needed.add(&calls)?;
            Ok(calls)
        };
        let units =
            run.local_units.par_iter().filter_map(|place| Some((*place as u64, run.units.get(*place)?)));
        let units = units.map(|(place, unit)| read_unit(unit).map(|calls| (place, calls)));
        let units: Result<Vec<(u64, UnitCalls)>, Failure> = units.collect();
        let units = match comm.size() {
            1 => units?,
            _ => {
                let units = agree_on_result(comm, units)?;
                needed.check_all(comm)?;
                gather_values(comm, units)?.into_iter().flatten().collect()
            }
        };
        if comm.rank() > 0 {
            return Ok(None);
        }
        let mut by_unit: Vec<UnitCalls> = run.units.iter().map(|_| UnitCalls::default()).collect();
        for (unit, calls) in units {
            if let Some(found) = by_unit.get_mut(unit as usize) {
                *found = calls;
            }
        }
        JoinedCalls::of(run, by_unit)?.finish(&names, options).map(Some)
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
