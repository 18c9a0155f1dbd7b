//! What is done with the columns of AMD's views. A column that is not here is compared as it is.

use super::referred::ReferredTable;

/// What is done with a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ColumnTreatment {
    /// Compared as it is.
    Verbatim,
    /// The id of the row itself, the guid, or an id in a view without guid, where nobody can say what it
    /// refers to once there are several.
    LeftOut,
    /// Replaced by words about the row with this id.
    Row(ReferredTable),
    /// Replaced by words about everything that has the same stack id.
    Stack,
    /// JSON in which a code object is named by id.
    LineInfo,
    /// JSON in which a stream is named by id, in a view without guid.
    StreamOfArgument,
    /// JSON to which a merge adds, under `rpd`, where the row comes from.
    Provenance,
    /// A name in front of which a merge of several ranks puts the rank.
    NameWithRank,
}

use ColumnTreatment::{LeftOut, LineInfo, NameWithRank, Provenance, Row, Stack, StreamOfArgument};
use ReferredTable::{Agent, CodeObject, Event, KernelSymbol, Node, Pmc, Queue, Region, Stream};

/// Columns of all views of a kind of event.
const EVENTS: [(&str, ColumnTreatment); 7] = [
    ("id", LeftOut),
    ("guid", LeftOut),
    ("nid", Row(Node)),
    ("event_id", Row(Event)),
    ("stack_id", Stack),
    ("parent_stack_id", Stack),
    ("line_info", LineInfo),
];

const KERNELS: [(&str, ColumnTreatment); 11] = [
    ("queue", NameWithRank),
    ("stream", NameWithRank),
    ("id", LeftOut),
    ("guid", LeftOut),
    ("nid", Row(Node)),
    ("code_object_id", Row(CodeObject)),
    ("kernel_id", Row(KernelSymbol)),
    ("stream_id", Row(Stream)),
    ("queue_id", Row(Queue)),
    ("stack_id", Stack),
    ("parent_stack_id", Stack),
];

const MEMORY: [(&str, ColumnTreatment); 9] = [
    ("queue_name", NameWithRank),
    ("stream_name", NameWithRank),
    ("id", LeftOut),
    ("guid", LeftOut),
    ("nid", Row(Node)),
    ("stream_id", Row(Stream)),
    ("queue_id", Row(Queue)),
    ("stack_id", Stack),
    ("parent_stack_id", Stack),
];

const COUNTERS: [(&str, ColumnTreatment); 11] = [
    ("id", LeftOut),
    ("guid", LeftOut),
    ("kernel_id", Row(KernelSymbol)),
    ("event_id", Row(Event)),
    ("stack_id", Stack),
    ("parent_stack_id", Stack),
    ("agent_id", Row(Agent)),
    ("queue_id", Row(Queue)),
    ("counter_id", Row(Pmc)),
    ("nid", Row(Node)),
    ("code_object_id", Row(CodeObject)),
];

/// Columns that are not compared as they are.
const TREATMENTS: [(&str, &[(&str, ColumnTreatment)]); 19] = [
    ("code_objects", &[("id", LeftOut), ("guid", LeftOut), ("nid", Row(Node))]),
    (
        "kernel_symbols",
        &[
            ("id", LeftOut),
            ("guid", LeftOut),
            ("nid", Row(Node)),
            ("code_object_id", Row(CodeObject)),
            // It is in JSON, and names the row itself.
            ("kernel_id", Row(KernelSymbol)),
        ],
    ),
    ("processes", &[("guid", LeftOut), ("nid", Row(Node))]),
    ("threads", &[("guid", LeftOut), ("nid", Row(Node)), ("name", NameWithRank)]),
    ("regions", &EVENTS),
    ("samples", &EVENTS),
    ("sample_regions", &EVENTS),
    ("regions_and_samples", &EVENTS),
    ("region_args", &[("id", Row(Region)), ("guid", LeftOut), ("nid", Row(Node))]),
    ("kernels", &KERNELS),
    ("pmc_info", &[("id", LeftOut), ("guid", LeftOut), ("nid", Row(Node))]),
    (
        "pmc_events",
        &[
            ("id", LeftOut),
            ("guid", LeftOut),
            ("pmc_id", Row(Pmc)),
            ("event_id", Row(Event)),
            ("nid", Row(Node)),
        ],
    ),
    (
        "events_args",
        &[
            ("event_id", LeftOut),
            ("stack_id", LeftOut),
            ("parent_stack_id", LeftOut),
            ("line_info", LineInfo),
            ("extdata", StreamOfArgument),
        ],
    ),
    (
        "stream_args",
        &[
            ("argument_id", LeftOut),
            ("event_id", LeftOut),
            ("stream_id", LeftOut),
            ("nid", LeftOut),
            ("stream_name", NameWithRank),
            ("extdata", Provenance),
        ],
    ),
    ("memory_copies", &MEMORY),
    ("memory_allocations", &MEMORY),
    ("scratch_memory", &MEMORY),
    ("counters_collection", &COUNTERS),
    // With several guids, nothing shows to which one an agent belongs. AMD's own view has the other columns not.
    ("busy", &[("agent_id", LeftOut), ("agent_abs_index", LeftOut), ("nid", LeftOut), ("pid", LeftOut)]),
];

/// What is done with a column of a view.
pub(super) fn treatment(view: &str, column: &str) -> ColumnTreatment {
    let listed = TREATMENTS.iter().find(|(name, _)| *name == view).map_or(&[][..], |(_, columns)| columns);
    listed
        .iter()
        .find(|(name, _)| *name == column)
        .map_or(ColumnTreatment::Verbatim, |(_, treatment)| *treatment)
}
