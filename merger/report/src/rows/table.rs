//! Tables with a start and an end in each row.

use rpd_shard::model::{TableId, rocpd};

/// A table with a start and an end in each row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum TimedTable {
    /// Calls and ranges.
    Region,
    Kernel,
    Copy,
    Allocation,
}

impl TimedTable {
    pub(crate) const ALL: [TimedTable; 4] =
        [TimedTable::Region, TimedTable::Kernel, TimedTable::Copy, TimedTable::Allocation];

    /// Returns the table of the database.
    pub(crate) fn id(self) -> TableId {
        match self {
            TimedTable::Region => rocpd::REGION,
            TimedTable::Kernel => rocpd::KERNEL_DISPATCH,
            TimedTable::Copy => rocpd::MEMORY_COPY,
            TimedTable::Allocation => rocpd::MEMORY_ALLOCATE,
        }
    }

    /// Returns the domain of rows without a category.
    pub(crate) fn domain(self) -> &'static str {
        match self {
            TimedTable::Region => "region",
            TimedTable::Kernel => "kernel",
            TimedTable::Copy => "copy",
            TimedTable::Allocation => "allocation",
        }
    }

    /// Returns the columns that are read.
    pub(super) fn columns(self) -> &'static [&'static str] {
        match self {
            TimedTable::Region => &["pid", "start", "end", "name_id", "event_id"],
            TimedTable::Kernel => &["pid", "start", "end", "kernel_id", "event_id", "agent_id"],
            TimedTable::Copy => {
                &["pid", "start", "end", "name_id", "event_id", "dst_agent_id", "src_agent_id"]
            }
            TimedTable::Allocation => &["pid", "start", "end", "type", "event_id"],
        }
    }

    /// Returns the column that names a row.
    pub(super) fn name(self) -> &'static str {
        match self {
            TimedTable::Region | TimedTable::Copy => "name_id",
            TimedTable::Kernel => "kernel_id",
            TimedTable::Allocation => "type",
        }
    }

    /// Returns the column with the agent that does the work or receives the copy.
    pub(super) fn agent(self) -> Option<&'static str> {
        match self {
            TimedTable::Kernel => Some("agent_id"),
            TimedTable::Copy => Some("dst_agent_id"),
            TimedTable::Region | TimedTable::Allocation => None,
        }
    }

    /// Returns the column with the agent that sends the copy.
    pub(super) fn source_agent(self) -> Option<&'static str> {
        (self == TimedTable::Copy).then_some("src_agent_id")
    }
}
