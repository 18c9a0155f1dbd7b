//! Shader clocks of GPUs, as the collector of the first rank of a node samples them for all GPUs of the node.

use super::node_counters::add_sampler;
use super::run_shards::push_values_of;
use super::scenario::Scenario;
use super::scenario_kind::GpuFault;
use super::scenarios::gpus::shader_clock;
use crate::synthetic::{RUN_START, Run};
use rpd_shard::model::{Value, rocpd};
use rpd_shard::record::SYSTEM_SOURCE;
use rpd_shard::{ShardWriter, WriteError};

/// Time between two samples, ns.
const PERIOD_NS: i64 = 20_000_000;

/// Returns what the extdata of the GPU with this number on its node has: the PCI address.
pub(super) fn gpu_extdata(number: u32) -> String {
    format!(r#"{{"rpd":{{"pci":"0000:{:02x}:00.0"}}}}"#, 0xc1 + number)
}

/// Adds the clocks of the GPUs of the node of a rank, if it is the first rank of its node. The run lasts `length_ns`.
pub(super) fn add_gpu_clocks(
    shard: &mut ShardWriter<Vec<u8>>,
    (run, rank, length_ns): (&Run, u32, i64),
    (scenario, fault): (&Scenario, GpuFault),
) -> Result<(), WriteError> {
    let Some(node) = add_sampler(shard, run, rank)? else { return Ok(()) };
    let of_rank = run.ranks[rank as usize].node;
    let mut counters = Vec::new();
    let of_node = (0u32..).zip(&run.ranks).filter(|(_, other)| other.node == of_rank);
    for (number, (rank, _)) in (0u32..).zip(of_node) {
        let (place, extdata) = (i64::from(number), gpu_extdata(number));
        let agent = [
            ("nid", 1.into()),
            ("pid", 1.into()),
            ("type", "GPU".into()),
            ("absolute_index", place.into()),
            ("logical_index", place.into()),
            ("type_index", place.into()),
            ("extdata", extdata.as_str().into()),
        ];
        let agent = push_values_of(shard, SYSTEM_SOURCE, rocpd::INFO_AGENT, &agent)?;
        let counter = [
            ("nid", 1.into()),
            ("pid", 1.into()),
            ("agent_id", agent.into()),
            ("target_arch", "GPU".into()),
            ("name", "gpu.clock_shader".into()),
            ("symbol", "gpu.clock_shader".into()),
            ("units", "MHz".into()),
            ("value_type", "ABS".into()),
        ];
        let counter = push_values_of(shard, SYSTEM_SOURCE, rocpd::INFO_PMC, &counter)?;
        counters.push((counter, shader_clock(scenario.size, fault, rank)));
    }
    let name = shard.string(b"system")?;
    let track = [("nid", 1.into()), ("pid", 1.into()), ("name_id", name.into())];
    let track = push_values_of(shard, SYSTEM_SOURCE, rocpd::TRACK, &track)?;
    let category = shard.string(b"SYSTEM_METRICS")?;
    let mut at_ns = 0;
    while at_ns <= length_ns + PERIOD_NS {
        let event = [("category_id", category.into())];
        let event = push_values_of(shard, SYSTEM_SOURCE, rocpd::EVENT, &event)?;
        let time = node.clock.local(RUN_START + at_ns);
        let sample = [("track_id", track.into()), ("timestamp", time.into()), ("event_id", event.into())];
        push_values_of(shard, SYSTEM_SOURCE, rocpd::SAMPLE, &sample)?;
        for (counter, clock) in &counters {
            let value =
                [("event_id", event.into()), ("pmc_id", (*counter).into()), ("value", Value::Real(*clock))];
            push_values_of(shard, SYSTEM_SOURCE, rocpd::PMC_EVENT, &value)?;
        }
        at_ns += PERIOD_NS;
    }
    Ok(())
}
