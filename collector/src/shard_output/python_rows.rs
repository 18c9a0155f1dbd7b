//! Samples of Python stacks as rows of RocPD.
//!
//! | table | rows |
//! |---|---|
//! | `rocpd_track` | one for each sampled thread, `Python stack` |
//! | `rocpd_event` | one per sample, category `PYTHON_SAMPLE`; the stack in `call_stack`; `$.rpd.period_ms`, the time between samples of a thread, on the first one of the process and where it changes |
//! | `rocpd_sample` | one per sample |

use super::sample_tracks::SampleTracks;
use rpd_shard::ShardWriter;
use rpd_shard::file::WriteError;
use rpd_shard::model::Value;
use rpd_shard::model::rocpd::{EVENT, SAMPLE};
use rpd_shard::record::{Loss, LossCause};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// Category of the events.
const CATEGORY: &[u8] = b"PYTHON_SAMPLE";
const ZERO: Value<'static> = Value::Int(0);
const NOTHING: Value<'static> = Value::Text(b"{}");

/// The Python stack of a thread at one time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PythonSample {
    pub(crate) source: u32,
    /// Key of the row of the thread.
    pub(crate) thread: i64,
    /// ns of `CLOCK_BOOTTIME`.
    pub(crate) time: i64,
    /// Time between samples from this one on, if it has changed.
    pub(crate) period: Option<Duration>,
    /// The stack as JSON.
    pub(crate) stack: Arc<str>,
}

impl PythonSample {
    pub(super) fn write<W: Write>(
        &self,
        writer: &mut ShardWriter<W>,
        tracks: &mut SampleTracks,
    ) -> Result<(), WriteError> {
        let track = Value::Int(tracks.python(writer, self.source, self.thread)?);
        let category = Value::Int(writer.string(CATEGORY)?);
        let extdata = self
            .period
            .map(|period| format!(r#"{{"rpd":{{"period_ms":{:.1}}}}}"#, period.as_secs_f64() * 1e3));
        let extdata = extdata.as_deref().map_or(NOTHING, Value::from);
        let event = [category, ZERO, ZERO, ZERO, Value::from(&*self.stack), NOTHING, extdata];
        let event = Value::Int(writer.push(self.source, EVENT, &event)?);
        writer.push(self.source, SAMPLE, &[track, Value::Int(self.time), event, NOTHING])?;
        Ok(())
    }

    /// Returns ledger entries for the rows of samples that are not written.
    pub(crate) fn losses(source: u32, samples: u64) -> [Loss; 2] {
        [EVENT, SAMPLE].map(|table| Loss {
            source,
            table: Some(table),
            cause: LossCause::RingFull,
            rows: Some(samples),
        })
    }
}
