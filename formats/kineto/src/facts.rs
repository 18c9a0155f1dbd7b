//! Statements of a file about itself outside its events, and statements of its sidecar.

use crate::cursor::{JsonValue, elements, members};
use crate::input::lossy;
use crate::number::integer;
use rpd_translator::cut_text;
use serde::Deserialize;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum length of a sidecar in bytes.
const MAX_SIDECAR: u64 = 64 << 10;
/// Maximum number of GPU descriptions, and maximum bytes kept of each.
const MAX_DEVICES: (usize, usize) = (1024, 64 << 10);
/// Maximum length of a host or device name in bytes.
const MAX_NAME: usize = 1024;
/// Maximum number of bytes of a value in a message.
const MAX_SHOWN: usize = 40;

/// The relevant top-level members.
#[derive(Clone, Debug, Default)]
pub(crate) struct TraceFacts {
    /// `baseTimeNanoseconds`: origin of all times, ns of `CLOCK_REALTIME`.
    pub(crate) base: Option<i64>,
    /// The value of `baseTimeNanoseconds`, if it is not a valid number.
    pub(crate) bad_base: Option<String>,
    /// A second, different value of `baseTimeNanoseconds`.
    pub(crate) second_base: Option<i64>,
    pub(crate) rank: Option<u32>,
    pub(crate) world: Option<u32>,
    pub(crate) host: Option<String>,
    /// `deviceProperties`.
    pub(crate) devices: Vec<GpuDevice>,
}

/// A GPU as the file describes it.
#[derive(Clone, Debug)]
pub(crate) struct GpuDevice {
    pub(crate) id: i64,
    pub(crate) name: String,
    /// The whole description as JSON.
    pub(crate) json: Vec<u8>,
}

/// Returns whether [`TraceFacts`] keeps the top-level member with this name.
pub(crate) fn is_fact(name: &[u8]) -> bool {
    matches!(name, b"baseTimeNanoseconds" | b"host_name" | b"distributedInfo" | b"deviceProperties")
}

impl TraceFacts {
    /// Records a member.
    pub(crate) fn take(&mut self, name: &[u8], value: JsonValue<'_>) {
        match (name, value) {
            (b"baseTimeNanoseconds", value) => {
                let base = value.plain().and_then(integer);
                match self.base {
                    None => {
                        self.base = base;
                        self.bad_base = base.is_none().then(|| shown(value));
                    }
                    // The first value counts: its times may already be in use.
                    Some(first) => self.second_base = self.second_base.or(base.filter(|base| *base != first)),
                }
            }
            (b"host_name", value) => {
                let named = |host: &String| !host.is_empty() && host.len() <= MAX_NAME;
                self.host = lossy(value).filter(named);
            }
            (b"distributedInfo", JsonValue::Object(object)) => {
                for (name, value) in members(object) {
                    let number = || u32::try_from(value.plain().and_then(integer)?).ok();
                    match name {
                        b"rank" => self.rank = number(),
                        b"world_size" => self.world = number().filter(|size| *size > 0),
                        _ => {}
                    }
                }
            }
            (b"deviceProperties", JsonValue::Array(array)) => {
                self.devices = elements(array).filter_map(GpuDevice::of).take(MAX_DEVICES.0).collect();
            }
            _ => {}
        }
    }
}

/// Returns the beginning of a value as it is spelled in the file.
fn shown(value: JsonValue<'_>) -> String {
    let (JsonValue::Text(text) | JsonValue::Scalar(text) | JsonValue::Array(text) | JsonValue::Object(text)) =
        value;
    let text = String::from_utf8_lossy(cut_text(text, MAX_SHOWN)).into_owned();
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

impl GpuDevice {
    fn of(value: JsonValue<'_>) -> Option<GpuDevice> {
        let JsonValue::Object(object) = value else { return None };
        let (mut id, mut device_name) = (None, String::new());
        for (name, value) in members(object) {
            match name {
                b"id" => id = value.plain().and_then(integer),
                b"name" => device_name = lossy(value).filter(|n| n.len() <= MAX_NAME).unwrap_or_default(),
                _ => {}
            }
        }
        let json = if object.len() <= MAX_DEVICES.1 { object.to_vec() } else { b"{}".to_vec() };
        Some(GpuDevice { id: id?, name: device_name, json })
    }
}

/// Data that the collector's hook recorded when the profiler was started.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct TraceSidecar {
    /// Start time of the profiler, ns of `CLOCK_BOOTTIME`.
    #[serde(default)]
    pub(crate) start_boottime_ns: Option<i64>,
    #[serde(default)]
    pub(crate) rank: Option<u32>,
    #[serde(default)]
    pub(crate) world_size: Option<u32>,
    /// Source of the rank. If it is set without a rank, the process has a rank of unknown number.
    #[serde(default)]
    pub(crate) rank_from: Option<String>,
    #[serde(default)]
    pub(crate) pid: Option<i32>,
}

impl TraceSidecar {
    /// Returns the source of the rank, if it is a valid name.
    pub(crate) fn name(&self) -> Option<String> {
        self.rank_from.clone().filter(|name| !name.is_empty() && name.len() <= MAX_NAME)
    }
}

/// Returns the path `TRACE.rpd.json` beside a trace.
pub(crate) fn sidecar_path(trace: &Path) -> PathBuf {
    rpd_files::beside(trace, ".rpd.json")
}

/// Reads the sidecar of a trace. Returns an empty one if there is none, and an error message if it is malformed.
pub(crate) fn sidecar(trace: &Path) -> Result<TraceSidecar, String> {
    let path = sidecar_path(trace);
    let Ok(file) = rpd_files::open_input(&path) else { return Ok(TraceSidecar::default()) };
    let mut text = Vec::new();
    let read = file.take(MAX_SIDECAR).read_to_end(&mut text);
    let parsed = read
        .map_err(|error| error.to_string())
        .and_then(|_| serde_json::from_slice::<TraceSidecar>(&text).map_err(|error| error.to_string()));
    parsed.map_err(|why| format!("{} is not used: {why}", path.display()))
}
