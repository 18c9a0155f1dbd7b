//! Reads debug annotations: named values, which may be lists and dictionaries.

use super::sequence::{PacketSequence, cut};
use super::wire::{Field, Fields, MalformedField};
use serde_json::{Map, Number, Value as Json};

/// Maximum nesting depth of lists and dictionaries.
const MAX_DEPTH: u32 = 32;

/// A value in the form of an arg.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReadAnnotation {
    pub(super) name: Vec<u8>,
    pub(super) kind: &'static str,
    pub(super) value: Vec<u8>,
}

/// The value of an annotation; the last one counts.
enum AnnotationValue<'a> {
    Nothing,
    Bool(bool),
    Uint(u64),
    Int(i64),
    Double(f64),
    Pointer(u64),
    Text(&'a [u8]),
    Json(Json),
}

/// Reads an annotation that may refer to interned data. `too_deep` counts values that are not examined.
pub(super) fn read(
    annotation: Field<'_>,
    sequence: &PacketSequence,
    too_deep: &mut u64,
) -> Result<ReadAnnotation, MalformedField> {
    let (name, given) = named(annotation.message()?, sequence, 0, too_deep)?;
    let (kind, value) = match given {
        AnnotationValue::Nothing => ("string", Vec::new()),
        AnnotationValue::Bool(value) => ("bool", value.to_string().into_bytes()),
        AnnotationValue::Uint(value) => ("uint", value.to_string().into_bytes()),
        AnnotationValue::Int(value) => ("int", value.to_string().into_bytes()),
        AnnotationValue::Double(value) => ("double", value.to_string().into_bytes()),
        AnnotationValue::Pointer(value) => ("pointer", format!("{value:#x}").into_bytes()),
        AnnotationValue::Text(value) => ("string", cut(value).to_vec()),
        AnnotationValue::Json(value) => ("json", value.to_string().into_bytes()),
    };
    Ok(ReadAnnotation { name: name.to_vec(), kind, value })
}

fn named<'a>(
    annotation: Fields<'a>,
    sequence: &'a PacketSequence,
    depth: u32,
    too_deep: &mut u64,
) -> Result<(&'a [u8], AnnotationValue<'a>), MalformedField> {
    let (mut name, mut given) = (&[][..], AnnotationValue::Nothing);
    let mut dictionary = Map::new();
    let mut list = Vec::new();
    if depth > MAX_DEPTH {
        *too_deep += 1;
        return Ok((name, given));
    }
    for field in annotation {
        match field? {
            (1, iid) => name = sequence.keys.get(&iid.uint()?).map_or(&b"(unknown)"[..], |name| name),
            (10, text) => name = text.bytes()?,
            (2, value) => given = AnnotationValue::Bool(value.uint()? != 0),
            (3, value) => given = AnnotationValue::Uint(value.uint()?),
            (4, value) => given = AnnotationValue::Int(value.int()?),
            (5, value) => given = AnnotationValue::Double(value.double()?),
            (6, value) => given = AnnotationValue::Text(value.bytes()?),
            (7, value) => given = AnnotationValue::Pointer(value.uint()?),
            (8, value) => given = AnnotationValue::Json(nested(value.message()?, depth, too_deep)?),
            // The writer declares this value as JSON; it is not checked.
            (9, value) => given = AnnotationValue::Text(value.bytes()?),
            (11, entry) => {
                let (key, value) = named(entry.message()?, sequence, depth + 1, too_deep)?;
                dictionary.insert(text(key), json(value));
            }
            (12, entry) => list.push(json(named(entry.message()?, sequence, depth + 1, too_deep)?.1)),
            (17, iid) => {
                given = AnnotationValue::Text(
                    sequence.values.get(&iid.uint()?).map_or(&b"(unknown)"[..], |text| text),
                );
            }
            _ => {}
        }
    }
    if !dictionary.is_empty() {
        given = AnnotationValue::Json(Json::Object(dictionary));
    } else if !list.is_empty() {
        given = AnnotationValue::Json(Json::Array(list));
    }
    Ok((name, given))
}

/// Reads a value of the older form, which stores names apart from values.
fn nested(value: Fields<'_>, depth: u32, too_deep: &mut u64) -> Result<Json, MalformedField> {
    if depth > MAX_DEPTH {
        *too_deep += 1;
        return Ok(Json::Null);
    }
    let (mut keys, mut values, mut list, mut single) = (Vec::new(), Vec::new(), Vec::new(), Json::Null);
    for field in value {
        match field? {
            (2, key) => keys.push(text(key.bytes()?)),
            (3, value) => values.push(nested(value.message()?, depth + 1, too_deep)?),
            (4, value) => list.push(nested(value.message()?, depth + 1, too_deep)?),
            (5, value) => single = value.int()?.into(),
            (6, value) => single = json(AnnotationValue::Double(value.double()?)),
            (7, value) => single = (value.uint()? != 0).into(),
            (8, value) => single = text(value.bytes()?).into(),
            _ => {}
        }
    }
    if !keys.is_empty() {
        return Ok(Json::Object(keys.into_iter().zip(values).collect()));
    }
    Ok(if list.is_empty() { single } else { Json::Array(list) })
}

fn json(given: AnnotationValue<'_>) -> Json {
    match given {
        AnnotationValue::Nothing => Json::Null,
        AnnotationValue::Bool(value) => value.into(),
        AnnotationValue::Uint(value) => value.into(),
        AnnotationValue::Int(value) => value.into(),
        // JSON cannot represent NaN and infinities.
        AnnotationValue::Double(value) => {
            Number::from_f64(value).map_or_else(|| value.to_string().into(), Json::Number)
        }
        AnnotationValue::Pointer(value) => format!("{value:#x}").into(),
        AnnotationValue::Text(value) => text(value).into(),
        AnnotationValue::Json(value) => value,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(cut(bytes)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{bytes, fixed64, int, message, uint};

    fn read_one(annotation: &[u8]) -> (String, &'static str, String, u64) {
        let mut too_deep = 0;
        let read = read(Field::Bytes(annotation), &PacketSequence::default(), &mut too_deep).unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(read.name), read.kind, text(read.value), too_deep)
    }

    #[test]
    fn values_keep_their_types() {
        let of = |value: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            bytes(&mut out, 10, b"n");
            value(&mut out);
            let (name, kind, value, too_deep) = read_one(&out);
            assert_eq!((name.as_str(), too_deep), ("n", 0));
            (kind, value)
        };
        assert_eq!(of(&|out| uint(out, 2, 1)), ("bool", "true".into()));
        assert_eq!(of(&|out| uint(out, 3, u64::MAX)), ("uint", u64::MAX.to_string()));
        assert_eq!(of(&|out| int(out, 4, -5)), ("int", "-5".into()));
        assert_eq!(of(&|out| fixed64(out, 5, 1.5f64.to_bits())), ("double", "1.5".into()));
        assert_eq!(of(&|out| bytes(out, 6, b"text")), ("string", "text".into()));
        assert_eq!(of(&|out| uint(out, 7, 0xabc)), ("pointer", "0xabc".into()));
    }

    #[test]
    fn lists_and_dictionaries_become_json() {
        let mut out = Vec::new();
        bytes(&mut out, 10, b"d");
        message(&mut out, 11, |out| {
            bytes(out, 10, b"list");
            for value in [1, 2] {
                message(out, 12, |out| uint(out, 3, value));
            }
        });
        message(&mut out, 11, |out| {
            bytes(out, 10, b"nan");
            fixed64(out, 5, f64::NAN.to_bits());
        });
        assert_eq!(read_one(&out), ("d".into(), "json", r#"{"list":[1,2],"nan":"NaN"}"#.into(), 0));
        let mut out = Vec::new();
        message(&mut out, 8, |out| {
            bytes(out, 2, b"a");
            message(out, 3, |out| int(out, 5, -1));
            bytes(out, 2, b"b");
            message(out, 3, |out| message(out, 4, |out| bytes(out, 8, b"x")));
        });
        assert_eq!(read_one(&out).2, r#"{"a":-1,"b":["x"]}"#);
    }

    #[test]
    fn depth_is_bounded() {
        for field in [8, 11, 12] {
            let mut out = Vec::new();
            for _ in 0..1000 {
                let inner = std::mem::take(&mut out);
                let of_nested = |out: &mut Vec<u8>| bytes(out, if field == 8 { 4 } else { field }, &inner);
                of_nested(&mut out);
            }
            if field == 8 {
                let inner = std::mem::take(&mut out);
                bytes(&mut out, 8, &inner);
            }
            assert_eq!(read_one(&out).3, 1, "{field}");
        }
    }
}
