//! The tracks of samples that the collector itself takes: one of the counters of a source, and one for each thread with
//! sampled stacks.

use rpd_shard::ShardWriter;
use rpd_shard::file::WriteError;
use rpd_shard::model::Value;
use rpd_shard::model::rocpd::TRACK;
use std::collections::HashMap;
use std::io::Write;

/// Name of the track of counters.
const SYSTEM: &[u8] = b"system";
/// Name of the tracks of Python stacks.
const PYTHON: &[u8] = b"Python stack";
/// Key of the only node and process of a source.
const ONLY: Value<'static> = Value::Int(1);

/// Keys of the tracks that were written, by source and key of the thread.
#[derive(Debug, Default)]
pub(super) struct SampleTracks(HashMap<(u32, Option<i64>), i64>);

impl SampleTracks {
    /// Returns the key of the track of the counters of a source.
    pub(super) fn system<W: Write>(
        &mut self,
        writer: &mut ShardWriter<W>,
        source: u32,
    ) -> Result<i64, WriteError> {
        self.key(writer, source, None, SYSTEM)
    }

    /// Returns the key of the track of the stacks of a thread.
    pub(super) fn python<W: Write>(
        &mut self,
        writer: &mut ShardWriter<W>,
        source: u32,
        thread: i64,
    ) -> Result<i64, WriteError> {
        self.key(writer, source, Some(thread), PYTHON)
    }

    fn key<W: Write>(
        &mut self,
        writer: &mut ShardWriter<W>,
        source: u32,
        thread: Option<i64>,
        name: &[u8],
    ) -> Result<i64, WriteError> {
        if let Some(known) = self.0.get(&(source, thread)) {
            return Ok(*known);
        }
        let name = Value::Int(writer.string(name)?);
        let row = [ONLY, ONLY, thread.map_or(Value::Null, Value::Int), name, Value::Text(b"{}")];
        let key = writer.push(source, TRACK, &row)?;
        self.0.insert((source, thread), key);
        Ok(key)
    }
}
