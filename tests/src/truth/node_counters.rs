//! Counters of nodes, as a collector writes them beside the rows of the first rank of its node.

use crate::synthetic::{RUN_START, Run, SyntheticNode, process_record};
use rpd_shard::model::{Value, rocpd};
use rpd_shard::record::{Process, SYSTEM_SOURCE};
use rpd_shard::{ShardWriter, WriteError};

/// Time between two samples, ns.
const PERIOD_NS: i64 = 100_000_000;
/// Keys of the agents: the CPUs of the node, and a GPU.
const CPU: i64 = 1;
const GPU: i64 = 2;

/// A counter of each node. The value is the first one and, on the named node, the second one.
const COUNTERS: [(&str, &str, i64, [f64; 2]); 3] = [
    ("cpu.user", "%", CPU, [25.0, 50.0]),
    ("memory.used", "B", CPU, [1_073_741_824.0, 1_073_741_824.0]),
    ("gpu.power", "W", GPU, [300.0, 400.0]),
];
/// A counter that only the named node has, until the middle of the run.
const ONLY_NAMED: (&str, &str, i64, f64) = ("only.<b>here</b>", "", CPU, -1.5);

/// Adds the process of the collector that samples the node of a rank, if that is the first one of its node. Returns the node.
pub(super) fn add_sampler<'a>(
    shard: &mut ShardWriter<Vec<u8>>,
    run: &'a Run,
    rank: u32,
) -> Result<Option<&'a SyntheticNode>, WriteError> {
    let planned = &run.ranks[rank as usize];
    let Some(process) = planned.processes.first().filter(|process| process.local_rank == 0) else {
        return Ok(None);
    };
    let node = &run.nodes[planned.node];
    shard.process(&Process {
        source: SYSTEM_SOURCE,
        pid: process.pid + 100_000,
        worker: false,
        command: format!("rpd-collect: system metrics of {}", node.node.hostname),
        ..process_record(run, process)
    })?;
    Ok(Some(node))
}

/// Adds the counters of the node of a rank. Of these, `subject` has some values of its own.
pub(super) fn add_node_counters(
    shard: &mut ShardWriter<Vec<u8>>,
    run: &Run,
    rank: u32,
    (subject, length_ns): (u32, i64),
) -> Result<(), WriteError> {
    let Some(node) = add_sampler(shard, run, rank)? else { return Ok(()) };
    let [of_rank, of_subject] = [rank, subject].map(|rank| run.ranks[rank as usize].node);
    let is_named = of_rank == of_subject;
    let (one, zero, none) = (Value::Int(1), Value::Int(0), Value::Text(b"{}"));
    for (place, kind, extdata) in [(0, "CPU", "{}"), (1, "GPU", r#"{"rpd":{"pci":"0000:c1:00.0"}}"#)] {
        let (kind, place, empty) = (Value::from(kind), Value::Int(place), Value::from(""));
        let row =
            [one, one, kind, place, place, zero, zero, kind, empty, empty, empty, empty, extdata.into()];
        shard.push(SYSTEM_SOURCE, rocpd::INFO_AGENT, &row)?;
    }
    let mut counters: Vec<(i64, f64, i64)> = Vec::new();
    let (name, unit, agent, value) = ONLY_NAMED;
    let mut wanted: Vec<(&str, &str, i64, f64, i64)> = Vec::new();
    wanted
        .extend(COUNTERS.map(|(name, unit, agent, values)| {
            (name, unit, agent, values[usize::from(is_named)], length_ns)
        }));
    wanted.extend(is_named.then_some((name, unit, agent, value, length_ns / 2)));
    for (name, unit, agent, value, until_ns) in wanted {
        let (name, unit, empty, arch) = (Value::from(name), Value::from(unit), Value::from(""), "CPU".into());
        let row = [
            one,
            one,
            Value::Int(agent),
            arch,
            zero,
            zero,
            name,
            name,
            empty,
            empty,
            empty,
            unit,
            "ABS".into(),
            empty,
            empty,
            zero,
            zero,
            none,
        ];
        counters.push((shard.push(SYSTEM_SOURCE, rocpd::INFO_PMC, &row)?, value, until_ns));
    }
    let track = Value::Int(shard.string(b"system")?);
    shard.push(SYSTEM_SOURCE, rocpd::TRACK, &[one, one, Value::Null, track, none])?;
    let category = Value::Int(shard.string(b"SYSTEM_METRICS")?);
    // Nodes do not sample at the same time.
    let first_ns = PERIOD_NS / 10 * (of_rank as i64 + 1);
    let mut at_ns = first_ns;
    while at_ns < length_ns {
        let event = [category, zero, zero, zero, none, none, none];
        let event = Value::Int(shard.push(SYSTEM_SOURCE, rocpd::EVENT, &event)?);
        let time = Value::Int(node.clock.local(RUN_START + at_ns));
        shard.push(SYSTEM_SOURCE, rocpd::SAMPLE, &[one, time, event, none])?;
        for (counter, value, _) in counters.iter().filter(|(_, _, until_ns)| at_ns < *until_ns) {
            let row = [event, Value::Int(*counter), Value::Real(*value), none];
            shard.push(SYSTEM_SOURCE, rocpd::PMC_EVENT, &row)?;
        }
        at_ns += PERIOD_NS;
    }
    Ok(())
}
