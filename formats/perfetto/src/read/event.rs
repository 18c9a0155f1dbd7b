//! Decodes a `TrackEvent` as far as possible without its track.

use super::annotations::{self, ReadAnnotation};
use super::sequence::{PacketSequence, cut};
use super::stacks;
use super::wire::{Fields, MalformedField};

/// The type of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum EventKind {
    #[default]
    Unknown,
    Begin,
    End,
    Instant,
    Counter,
}

/// A decoded event; see the module.
#[derive(Debug, Default)]
pub(super) struct TrackEvent {
    pub(super) kind: EventKind,
    pub(super) track: Option<u64>,
    /// Name; `None` if the event has none.
    pub(super) name: Option<Vec<u8>>,
    /// Categories, separated by commas; empty if the event has none.
    pub(super) category: Vec<u8>,
    pub(super) annotations: Vec<ReadAnnotation>,
    /// Flows that begin, continue or end at this event.
    pub(super) flows: Vec<u64>,
    pub(super) correlation: Option<u64>,
    /// Call stack as JSON.
    pub(super) call_stack: Option<String>,
    pub(super) value: Option<f64>,
    /// Values of other counters at the same time, with their tracks.
    pub(super) others: Vec<(u64, f64)>,
    /// Number of values without a counter.
    pub(super) strays: u64,
    /// Number of values that are nested too deeply to be examined.
    pub(super) too_deep: u64,
    /// Whether the event refers to data that was not interned.
    pub(super) is_unknown: bool,
}

/// Decodes an event; `unread` receives the numbers of unsupported fields.
pub(super) fn decode(
    event: Fields<'_>,
    sequence: &PacketSequence,
    mut unread: impl FnMut(u32),
) -> Result<TrackEvent, MalformedField> {
    let mut read = TrackEvent { track: sequence.defaults.track, ..TrackEvent::default() };
    let (mut tracks, mut values) = (Vec::new(), Vec::new());
    let (mut double_tracks, mut double_values) = (Vec::new(), Vec::new());
    for field in event {
        let (number, field) = field?;
        match number {
            3 => {
                let mut iids = Vec::new();
                field.uints(&mut iids)?;
                for iid in iids {
                    let text = sequence.categories.get(&iid);
                    read.is_unknown |= text.is_none();
                    read.add_category(text.map_or(&[][..], |text| text));
                }
            }
            22 => read.add_category(field.bytes()?),
            10 => {
                let text = sequence.names.get(&field.uint()?);
                read.is_unknown |= text.is_none();
                read.name = text.map(|text| cut(text).to_vec());
            }
            23 => read.name = Some(cut(field.bytes()?).to_vec()),
            4 => read.annotations.push(annotations::read(field, sequence, &mut read.too_deep)?),
            9 => {
                read.kind = match field.int32()? {
                    1 => EventKind::Begin,
                    2 => EventKind::End,
                    3 => EventKind::Instant,
                    4 => EventKind::Counter,
                    _ => EventKind::Unknown,
                }
            }
            11 => read.track = Some(field.uint()?),
            30 => read.value = Some(field.int()? as f64),
            44 => read.value = Some(field.double()?),
            31 => field.uints(&mut tracks)?,
            12 => field.uints(&mut values)?,
            45 => field.uints(&mut double_tracks)?,
            46 => field.fixed64s(&mut double_values)?,
            36 | 42 => field.uints(&mut read.flows)?,
            47 | 48 => field.fixed64s(&mut read.flows)?,
            52 => read.correlation = Some(field.uint()?),
            55 => read.call_stack = stacks::json(&stacks::inline(field)?),
            56 => {
                let frames = sequence.frames(field.uint()?);
                read.is_unknown |= frames.is_none();
                read.call_stack = frames.and_then(|frames| stacks::json(&frames));
            }
            _ => unread(number),
        }
    }
    let default = |given: Vec<u64>, default: &[u64]| if given.is_empty() { default.to_vec() } else { given };
    tracks = default(tracks, &sequence.defaults.counters);
    double_tracks = default(double_tracks, &sequence.defaults.double_counters);
    let strays = |values: &[u64], tracks: &[u64]| values.len().saturating_sub(tracks.len()) as u64;
    read.strays = strays(&values, &tracks) + strays(&double_values, &double_tracks);
    let whole = tracks.into_iter().zip(values.into_iter().map(|value| value as i64 as f64));
    let double = double_tracks.into_iter().zip(double_values.into_iter().map(f64::from_bits));
    read.others = whole.chain(double).collect();
    Ok(read)
}

impl TrackEvent {
    fn add_category(&mut self, category: &[u8]) {
        if !self.category.is_empty() {
            self.category.push(b',');
        }
        self.category.extend_from_slice(category);
        let length = cut(&self.category).len();
        self.category.truncate(length);
    }
}
