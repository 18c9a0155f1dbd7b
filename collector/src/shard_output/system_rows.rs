//! Counters and their values as rows of RocPD, in the form of rocprofiler-systems: a description per counter,
//! and per tick an event to which sample and values refer.
//!
//! | table | rows |
//! |---|---|
//! | `rocpd_info_process` | one, `rpd-collect: system metrics of HOST` |
//! | `rocpd_info_agent` | one of type `CPU` for the node, and one of type `GPU` per device, with its PCI address in the name and in `$.rpd.pci` |
//! | `rocpd_info_pmc` | one per counter, `value_type` `ABS`, `target_arch` `CPU` or `GPU`; of a thread, `$.rpd.tid` and, if they are known, its CPUs in `$.rpd.cpus` |
//! | `rocpd_track` | one of the source, `system`, without a thread |
//! | `rocpd_event` | one per tick, category `SYSTEM_METRICS`; `$.rpd.period_ms` on the first, and where the period changes |
//! | `rocpd_sample` | one per tick; rocprofiler-systems has one per counter and tick |
//! | `rocpd_pmc_event` | one per value, which is written if it changed, and once a second |

use super::sample_tracks::SampleTracks;
use crate::host::cpus::CpuList;
use rpd_shard::ShardWriter;
use rpd_shard::file::WriteError;
use rpd_shard::model::Value;
use rpd_shard::model::rocpd::{EVENT, INFO_AGENT, INFO_PMC, PMC_EVENT, SAMPLE};
use rpd_shard::record::{Loss, LossCause};
use std::io::Write;

/// Category of the events.
const CATEGORY: &[u8] = b"SYSTEM_METRICS";
/// Key of the only node and process of the source.
const ONLY: Value<'static> = Value::Int(1);
const ZERO: Value<'static> = Value::Int(0);
const EMPTY: Value<'static> = Value::Text(b"");
const NOTHING: Value<'static> = Value::Text(b"{}");

/// Device that counters belong to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MetricAgent {
    /// The CPUs of the node, or a GPU.
    pub(crate) is_gpu: bool,
    /// Model, or driver and PCI address.
    pub(crate) name: String,
    /// Name of the product, if the device has one.
    pub(crate) product: String,
    /// PCI address of a GPU.
    pub(crate) pci: String,
}

/// A counter. Its index in [`MetricsDescription::counters`] is the index of its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MetricCounter {
    /// Name. It contains the name of the device, unless the agent is the device.
    pub(crate) name: String,
    /// Description for users.
    pub(crate) description: &'static str,
    /// Unit of the values.
    pub(crate) units: &'static str,
    /// Component of the node.
    pub(crate) component: &'static str,
    /// Index of its agent.
    pub(crate) agent: usize,
    /// Index of the device among those of the component.
    pub(crate) instance: usize,
    /// The thread, of a counter of a thread.
    pub(crate) thread: Option<CountedThread>,
}

/// The thread of a counter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CountedThread {
    /// Thread id from the system.
    pub(crate) tid: i32,
    /// CPUs that the thread may run on, if they are known.
    pub(crate) cpus: Option<CpuList>,
}

impl CountedThread {
    fn extdata(&self) -> String {
        let cpus = self.cpus.as_ref().map(|cpus| format!(r#","cpus":"{cpus}""#)).unwrap_or_default();
        format!(r#"{{"rpd":{{"tid":{}{cpus}}}}}"#, self.tid)
    }
}

/// Agents and counters of the node or of a process. The first description of a source has its agents, and later ones have
/// more counters.
#[derive(Clone, PartialEq, Debug)]
pub struct MetricsDescription {
    pub(crate) source: u32,
    pub(crate) agents: Vec<MetricAgent>,
    pub(crate) counters: Vec<MetricCounter>,
}

/// The values of one tick.
#[derive(Clone, PartialEq, Debug)]
pub struct MetricsTick {
    pub(crate) source: u32,
    /// ns of `CLOCK_BOOTTIME`.
    pub(crate) time: i64,
    /// Time between samples from this one on, ms, if it has changed.
    pub(crate) period: Option<u128>,
    /// Keys of counters and their values.
    pub(crate) values: Vec<(i64, f64)>,
}

impl MetricsDescription {
    pub(super) fn write<W: Write>(&self, writer: &mut ShardWriter<W>) -> Result<(), WriteError> {
        for (place, agent) in self.agents.iter().enumerate() {
            let type_index = int(place.saturating_sub(usize::from(agent.is_gpu)));
            let extdata = match agent.pci.as_str() {
                "" => "{}".to_owned(),
                pci => format!(r#"{{"rpd":{{"pci":"{pci}"}}}}"#),
            };
            let [kind, name, product, extdata] =
                [arch(agent), &agent.name, &agent.product, &extdata].map(Value::from);
            let (vendor, place) = (Value::from(if agent.is_gpu { "AMD" } else { "CPU" }), int(place));
            let row = [
                ONLY, ONLY, kind, place, place, type_index, ZERO, name, EMPTY, vendor, product, EMPTY,
                extdata,
            ];
            writer.push(self.source, INFO_AGENT, &row)?;
        }
        for counter in &self.counters {
            let MetricCounter { name, description, units, component, thread, .. } = counter;
            let extdata = thread.as_ref().map(CountedThread::extdata);
            let [name, text, units, component, value_type] =
                [name.as_str(), description, units, component, "ABS"].map(Value::from);
            let (agent, instance) = (int(counter.agent + 1), int(counter.instance));
            let arch = Value::from(self.agents.get(counter.agent).map_or("CPU", arch));
            let row = [
                ONLY,
                ONLY,
                agent,
                arch,
                ZERO,
                instance,
                name,
                name,
                text,
                EMPTY,
                component,
                units,
                value_type,
                EMPTY,
                EMPTY,
                ZERO,
                ZERO,
                extdata.as_deref().map_or(NOTHING, Value::from),
            ];
            writer.push(self.source, INFO_PMC, &row)?;
        }
        Ok(())
    }
}

impl MetricsTick {
    pub(super) fn write<W: Write>(
        &self,
        writer: &mut ShardWriter<W>,
        tracks: &mut SampleTracks,
    ) -> Result<(), WriteError> {
        let track = Value::Int(tracks.system(writer, self.source)?);
        let category = Value::Int(writer.string(CATEGORY)?);
        let extdata = self.period.map(|ms| format!(r#"{{"rpd":{{"period_ms":{ms}}}}}"#));
        let extdata = extdata.as_deref().map_or(NOTHING, Value::from);
        let event = [category, ZERO, ZERO, ZERO, NOTHING, NOTHING, extdata];
        let event = Value::Int(writer.push(self.source, EVENT, &event)?);
        writer.push(self.source, SAMPLE, &[track, Value::Int(self.time), event, NOTHING])?;
        for (counter, value) in &self.values {
            let row = [event, Value::Int(*counter), Value::Real(*value), NOTHING];
            writer.push(self.source, PMC_EVENT, &row)?;
        }
        Ok(())
    }

    /// Returns ledger entries for the rows of a tick that is not written.
    pub(crate) fn losses(&self) -> [Loss; 3] {
        let loss = |table, rows| Loss {
            source: self.source,
            table: Some(table),
            cause: LossCause::RingFull,
            rows: Some(rows),
        };
        [loss(EVENT, 1), loss(SAMPLE, 1), loss(PMC_EVENT, self.values.len() as u64)]
    }
}

fn arch(agent: &MetricAgent) -> &'static str {
    if agent.is_gpu { "GPU" } else { "CPU" }
}

fn int(number: usize) -> Value<'static> {
    Value::Int(number as i64)
}
