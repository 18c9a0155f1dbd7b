//! Decodes the units of a file of calls.

use super::{CallFile, CallFileError};
use crate::labels::LabelKey;
use crate::region_names::RegionNames;
use crate::step_ranges::StepRanges;
use crate::unit_calls::UnitCalls;
use rayon::prelude::*;
use rpd_shard::record::wire;
use std::os::unix::fs::FileExt;
use zstd::bulk::Decompressor;

impl CallFile {
    /// Reads the calls of all units, in their order.
    ///
    /// # Errors
    /// The first damage.
    pub(crate) fn units(&self, names: &RegionNames) -> Result<Vec<UnitCalls>, CallFileError> {
        let units = self.units.par_iter().map(|&(offset, stored, decoded)| {
            let mut frame = vec![0; stored];
            self.file.read_exact_at(&mut frame, offset)?;
            let damaged = |problem: String| CallFileError::Damaged { offset, problem };
            let unit = decode(&frame, decoded).map_err(damaged)?;
            check(&unit, names).map_err(|problem| damaged(problem.to_owned()))?;
            Ok(unit)
        });
        units.collect()
    }
}

fn decode(frame: &[u8], decoded_bytes: usize) -> Result<UnitCalls, String> {
    let mut decompressor = Decompressor::new().map_err(|error| error.to_string())?;
    let bytes = decompressor.decompress(frame, decoded_bytes).map_err(|error| error.to_string())?;
    if bytes.len() != decoded_bytes {
        return Err("it has another length than it states".to_owned());
    }
    let mut unit: UnitCalls = wire::decode_unlimited(&bytes).map_err(|error| error.to_string())?;
    let timelines = unit.processes.iter_mut().flat_map(|process| &mut process.timelines);
    timelines.for_each(|timeline| timeline.shrink_to_fit());
    Ok(unit)
}

/// Checks what joining the calls to those of the run relies on. [`rpd_graph::JobCalls::check`] checks the rest.
fn check(unit: &UnitCalls, names: &RegionNames) -> Result<(), &'static str> {
    let is_known = |label: &LabelKey| match *label {
        LabelKey::Name(place) => names.has_string(place),
        LabelKey::Class(class) => names.has_class(class),
        LabelKey::Function(function) => names.has_function(function),
        LabelKey::Between(before, after) => {
            [before, after].into_iter().flatten().all(|function| names.has_function(function))
        }
        LabelKey::Other => true,
    };
    if !unit.labels.iter().all(is_known) {
        return Err("a label is not in the database");
    }
    for process in &unit.processes {
        let timelines = process.timelines.len();
        for timeline in &process.timelines {
            let (calls, work) = (&timeline.calls, &timeline.work);
            let mut labels = calls.iter().map(|call| call.label).chain(work.iter().map(|work| work.label));
            if !labels.all(|label| (label as usize) < unit.labels.len()) {
                return Err("a call or its work has no label");
            }
            let operations = &timeline.operations;
            if operations.completions.iter().any(|completion| completion.begun_on as usize >= timelines) {
                return Err("a completion is of no thread of its process");
            }
            let are_usable = |ranges: &StepRanges| {
                let spans = &ranges.spans;
                names.has_class(ranges.class)
                    && spans.len() == ranges.names.len()
                    && ranges.names.iter().all(|place| names.has_string(*place))
                    && spans.is_sorted_by(|one, other| one.1 <= other.0)
            };
            if !timeline.step_ranges.iter().all(are_usable) {
                return Err("ranges of steps are not in order, or have no name");
            }
        }
    }
    Ok(())
}
