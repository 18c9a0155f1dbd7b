//! Texts that rows of all kinds share: names of annotations, and labels of agents.

use crate::item::{TextId, TextTable};
use rpd_run::UnitNames;
use std::collections::HashMap;

/// Numbers of these texts in a unit.
#[derive(Debug)]
pub(super) struct SharedLabels {
    pub(super) call: TextId,
    pub(super) call_stack: TextId,
    pub(super) open: TextId,
    pub(super) grid: TextId,
    pub(super) workgroup: TextId,
    pub(super) dispatch: TextId,
    pub(super) queue: TextId,
    pub(super) stream: TextId,
    pub(super) lds: TextId,
    pub(super) scratch: TextId,
    pub(super) region: TextId,
    pub(super) size: TextId,
    pub(super) src: TextId,
    pub(super) dst: TextId,
    pub(super) address: TextId,
    pub(super) level: TextId,
    pub(super) agent: TextId,
    pub(super) track: TextId,
    pub(super) unknown: TextId,
    /// Labels of agents, by place.
    agents: Vec<TextId>,
    queues: Vec<TextId>,
    streams: Vec<TextId>,
    sizes: HashMap<[i64; 3], TextId>,
    last: ([i64; 3], TextId),
}

impl SharedLabels {
    pub(super) fn new(texts: &mut TextTable, names: &UnitNames) -> SharedLabels {
        let agents = names.agents.iter().map(|agent| texts.add(&agent.label())).collect();
        let [queues, streams] = [&names.queues, &names.streams]
            .map(|lanes| lanes.iter().map(|lane| texts.add(&lane.name)).collect());
        let zero = texts.add("0,0,0");
        SharedLabels {
            call: texts.add("call"),
            call_stack: texts.add("call_stack"),
            open: texts.add("open"),
            grid: texts.add("grid"),
            workgroup: texts.add("workgroup"),
            dispatch: texts.add("dispatch_id"),
            queue: texts.add("queue"),
            stream: texts.add("stream"),
            lds: texts.add("lds_size"),
            scratch: texts.add("scratch_size"),
            region: texts.add("region"),
            size: texts.add("size"),
            src: texts.add("src"),
            dst: texts.add("dst"),
            address: texts.add("address"),
            level: texts.add("level"),
            agent: texts.add("agent"),
            track: texts.add("track"),
            unknown: texts.add("(unknown)"),
            agents,
            queues,
            streams,
            sizes: HashMap::new(),
            last: ([0; 3], zero),
        }
    }

    /// Returns the label of an agent.
    pub(super) fn agent_at(&self, place: Option<u32>) -> Option<TextId> {
        self.agents.get(place? as usize).copied()
    }

    /// Returns the label of a queue.
    #[inline]
    pub(super) fn queue_at(&self, place: Option<u32>) -> Option<TextId> {
        self.queues.get(place? as usize).copied()
    }

    /// Returns the label of a stream.
    #[inline]
    pub(super) fn stream_at(&self, place: Option<u32>) -> Option<TextId> {
        self.streams.get(place? as usize).copied()
    }

    /// Returns three numbers as one text.
    #[inline]
    pub(super) fn size_text(&mut self, sizes: [i64; 3], texts: &mut TextTable) -> TextId {
        if self.last.0 != sizes {
            let [x, y, z] = sizes;
            let text = *self.sizes.entry(sizes).or_insert_with(|| texts.add(&format!("{x},{y},{z}")));
            self.last = (sizes, text);
        }
        self.last.1
    }
}
