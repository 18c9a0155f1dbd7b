//! What the second pass reads of a unit.

use super::placement::RowPlacement;
use super::{JobRows, SurveyedUnit};
use crate::item::{ItemExclusion, UnitLayout};
use rpd_run::{RowUnit, RunTables};

/// A unit, with the results of its survey.
pub(super) struct UnitSource<'a> {
    pub(super) job: &'a JobRows,
    pub(super) unit: &'a RowUnit,
    /// Index of the unit in the job.
    pub(super) place: usize,
    pub(super) seen: &'a SurveyedUnit,
    pub(super) placing: RowPlacement<'a>,
    pub(super) asked: AskedEvents,
    /// Number of further bytes that may be used.
    pub(super) memory: u64,
}

/// Which details of events are requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedEvents {
    /// Whether all args are requested. Otherwise only those that identify collectives are read.
    pub(super) args: bool,
    /// Whether args are needed to identify collectives.
    pub(super) collectives: bool,
    pub(super) values: bool,
    pub(super) flows: bool,
}

impl<'a> UnitSource<'a> {
    pub(super) fn new(
        job: &'a JobRows,
        (place, unit): (usize, &'a RowUnit),
        layout: &'a UnitLayout,
        memory: u64,
    ) -> UnitSource<'a> {
        let selection = &job.selection;
        let flows = selection.includes(ItemExclusion::Flows);
        let asked = AskedEvents {
            args: selection.annotations && selection.includes(ItemExclusion::Args),
            collectives: flows && selection.includes(ItemExclusion::Regions),
            values: selection.includes(ItemExclusion::Counters),
            flows,
        };
        let placing = RowPlacement::new(job, unit, &layout.seen.names);
        UnitSource { job, unit, place, seen: &layout.seen, placing, asked, memory }
    }

    pub(super) fn tables(&self) -> &'a RunTables {
        &self.job.run.tables
    }
}
