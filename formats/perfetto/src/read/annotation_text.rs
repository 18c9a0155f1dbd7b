//! Finds an annotation of the first event without reading the trace.

use super::wire::{Field, Fields, MalformedField};
use crate::wire::packet;

/// Table of the names of annotations in interned data.
const ANNOTATION_NAMES: u32 = 3;
/// Annotations of an event.
const ANNOTATIONS: u32 = 4;

/// Returns the text that the first event at the start of a trace gives to an annotation of this name. The name must be
/// interned in a preceding packet.
pub fn first_annotation_text(start: &[u8], name: &str) -> Option<String> {
    let found = find(start, name.as_bytes()).ok().flatten()?;
    std::str::from_utf8(found).ok().map(str::to_owned)
}

fn find<'a>(start: &'a [u8], name: &[u8]) -> Result<Option<&'a [u8]>, MalformedField> {
    let mut iid = None;
    for packet in Fields(start) {
        let (_, packet) = packet?;
        for field in packet.message()? {
            match field? {
                (packet::INTERNED_DATA, data) => iid = name_id(data.message()?, name)?.or(iid),
                (packet::TRACK_EVENT, event) => {
                    return iid.map_or(Ok(None), |iid| text(event.message()?, iid));
                }
                _ => {}
            }
        }
    }
    Ok(None)
}

/// Returns the number of an annotation's name, if this interned data has it.
fn name_id(data: Fields<'_>, name: &[u8]) -> Result<Option<u64>, MalformedField> {
    for entry in data {
        let (ANNOTATION_NAMES, entry) = entry? else { continue };
        let [id, text] = two(entry.message()?, [1, 2])?;
        if text == Some(Field::Bytes(name)) {
            return id.map(Field::uint).transpose();
        }
    }
    Ok(None)
}

/// Returns the text of an event's annotation with a name of this number.
fn text<'a>(event: Fields<'a>, name: u64) -> Result<Option<&'a [u8]>, MalformedField> {
    for annotation in event {
        let (ANNOTATIONS, annotation) = annotation? else { continue };
        let [id, text] = two(annotation.message()?, [1, 6])?;
        if id == Some(Field::Varint(name)) {
            return text.map(Field::bytes).transpose();
        }
    }
    Ok(None)
}

/// Returns two fields of a message.
fn two<'a>(message: Fields<'a>, numbers: [u32; 2]) -> Result<[Option<Field<'a>>; 2], MalformedField> {
    let mut found = [None; 2];
    for field in message {
        let (number, value) = field?;
        if let Some(place) = numbers.iter().position(|wanted| *wanted == number) {
            found[place] = Some(value);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Annotation, Event, Sequence, StringId, Timestamp, TrackId, Value};
    use std::num::NonZeroU32;

    #[test]
    fn a_text_of_the_first_event_is_found() {
        let mut sequence = Sequence::new(NonZeroU32::MIN);
        let name = sequence.event_name(StringId(0), || "event");
        let mut annotations = Vec::new();
        for (id, (name, value)) in (0..).zip([("run", "a"), ("ranks", "0-3")]) {
            let name = sequence.annotation_name(StringId(id), || name);
            annotations.push(Annotation { name, value: Value::Text(value) });
        }
        let event = Event::new(Timestamp::default(), TrackId(1), name);
        sequence.begin(&Event { annotations: &annotations, ..event });
        let first = sequence.packets().len();
        let other =
            [Annotation { name: sequence.annotation_name(StringId(9), || "later"), value: Value::Text("x") }];
        sequence.instant(&Event { annotations: &other, ..event });
        let bytes = sequence.packets();
        assert_eq!(first_annotation_text(bytes, "ranks").as_deref(), Some("0-3"));
        assert_eq!(first_annotation_text(bytes, "run").as_deref(), Some("a"));
        for missing in ["event", "later"] {
            assert_eq!(first_annotation_text(bytes, missing), None);
        }
        for cut in 0..first {
            assert_eq!(first_annotation_text(&bytes[..cut], "ranks"), None, "{cut}");
        }
    }
}
