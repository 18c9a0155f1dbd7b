//! The extdata of an event: its message, and its args as the PyTorch profiler writes them.

use super::arg_values::StoredValue;
use super::text_columns::{TextStore, lossy};
use crate::item::{TextId, TextTable, UnitDictionary};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{Formatter, Result as FmtResult};

/// Range of the args of an event in [`ExtdataArgs::all`].
pub(super) type ArgRange = (u32, u32);

/// Args in the extdata of events. Events with the same extdata share them.
#[derive(Debug, Default)]
pub(super) struct ExtdataArgs {
    pub(super) all: Vec<(TextId, StoredValue)>,
    /// Range of each event. Events beyond the end have none.
    pub(super) of_events: Vec<ArgRange>,
}

impl ExtdataArgs {
    #[inline]
    pub(super) fn of(&self, event: u32) -> &[(TextId, StoredValue)] {
        let (first, end) = self.of_events.get(event as usize).copied().unwrap_or_default();
        self.all.get(first as usize..end as usize).unwrap_or_default()
    }
}

/// The parts of an extdata that are drawn.
#[derive(Deserialize)]
struct DrawnExtdata<'a> {
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
}

/// Returns the message in the extdata of an event; 0 if there is none. Adds its args to `args`, with their texts, and
/// returns where they are. Without `args`, the range only has the number of args.
pub(super) fn parse_extdata(
    extdata: &[u8],
    dictionary: &mut UnitDictionary,
    mended: &mut u64,
    args: Option<(&mut Vec<(TextId, StoredValue)>, &mut String)>,
) -> (TextId, ArgRange) {
    let none = (TextId(0), (0, 0));
    if extdata.len() < br#"{"args":{"a":1}}"#.len().min(br#"{"message":""}"#.len()) {
        return none;
    }
    let text = lossy(extdata, mended);
    // serde would read the elements of an array as struct fields.
    let object = Some(&*text).filter(|text| text.trim_start().starts_with('{'));
    let parsed = object.and_then(|text| serde_json::from_str::<DrawnExtdata<'_>>(text).ok());
    let Some(DrawnExtdata { message, args: members }) = parsed else { return none };
    let message = message.map_or(TextId(0), |message| dictionary.texts.add(&message));
    let members = members.map(RawValue::get).filter(|members| members.starts_with('{'));
    let Some(members) = members else { return (message, (0, 0)) };
    let Some((all, texts)) = args else { return (message, (0, member_count(members))) };
    let first = all.len() as u32;
    let reader = ArgReader { dictionary, texts, all };
    // The object was parsed before, so that this does not fail.
    let _ = reader.deserialize(&mut serde_json::Deserializer::from_str(members));
    (message, (first, all.len() as u32))
}

/// Returns the number of members of an object; 0 for other JSON.
fn member_count(object: &str) -> u32 {
    let members = serde_json::from_str::<HashMap<Cow<'_, str>, IgnoredAny>>(object);
    members.map_or(0, |members| members.len() as u32)
}

/// Reads the members of an object as args.
struct ArgReader<'t> {
    dictionary: &'t mut UnitDictionary,
    texts: &'t mut String,
    all: &'t mut Vec<(TextId, StoredValue)>,
}

impl ArgReader<'_> {
    fn stored_value(&mut self, json: &str) -> StoredValue {
        let store = TextStore { dictionary: self.dictionary, texts: self.texts };
        match json.as_bytes().first() {
            Some(b'"') => match serde_json::from_str::<Cow<'_, str>>(json) {
                Ok(text) => store.add(&text),
                Err(_) => store.add(json),
            },
            Some(b't') => StoredValue::Bool(true),
            Some(b'f') => StoredValue::Bool(false),
            Some(b'-' | b'0'..=b'9') => {
                let int = || json.parse().ok().map(StoredValue::Int);
                let uint = || json.parse().ok().map(StoredValue::Uint);
                let double = || json.parse().ok().filter(|number: &f64| number.is_finite());
                let number = int().or_else(uint).or_else(|| double().map(StoredValue::Double));
                number.unwrap_or_else(|| store.add(json))
            }
            // Lists such as the sizes of a tensor.
            _ => store.add(&on_one_line(json)),
        }
    }
}

/// Writes JSON that is indented as the PyTorch profiler writes lists: `[[4, 8], []]`.
fn on_one_line(json: &str) -> Cow<'_, str> {
    if !json.contains('\n') {
        return Cow::Borrowed(json);
    }
    let mut line = String::with_capacity(json.len());
    let (mut in_text, mut is_escaped) = (false, false);
    for c in json.chars() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if in_text => is_escaped = true,
            '"' => in_text = !in_text,
            ' ' | '\n' | '\r' | '\t' if !in_text => continue,
            ',' if !in_text => {
                line.push_str(", ");
                continue;
            }
            _ => {}
        }
        line.push(c);
    }
    Cow::Owned(line)
}

impl<'de> DeserializeSeed<'de> for ArgReader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ArgReader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut Formatter<'_>) -> FmtResult {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key_seed(ArgName(&mut self.dictionary.texts))? {
            let json: &RawValue = members.next_value()?;
            let value = self.stored_value(json.get());
            self.all.push((name, value));
        }
        Ok(())
    }
}

/// Numbers the name of an arg.
struct ArgName<'t>(&'t mut TextTable);

impl<'de> DeserializeSeed<'de> for ArgName<'_> {
    type Value = TextId;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<TextId, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for ArgName<'_> {
    type Value = TextId;

    fn expecting(&self, f: &mut Formatter<'_>) -> FmtResult {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<TextId, E> {
        Ok(self.0.add(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indented_lists_are_written_on_one_line() {
        for (json, wanted) in [
            ("[[4, 8],[]]", "[[4, 8],[]]"),
            ("[\n  [\n    4,\n    8\n  ],\n  []\n]", "[[4, 8], []]"),
            ("[\n \"a, \\\" b\",\t1 ]", "[\"a, \\\" b\", 1]"),
        ] {
            assert_eq!(on_one_line(json), wanted);
        }
    }

    #[test]
    fn a_message_is_what_extdata_says() {
        let mut dictionary = UnitDictionary::default();
        let mut of = |text: &str| {
            let (id, _) = parse_extdata(text.as_bytes(), &mut dictionary, &mut 0, None);
            dictionary.texts.get(id).to_owned()
        };
        assert_eq!(of(r#"{"message": "step \"1\""}"#), "step \"1\"");
        assert_eq!(of(r#"{"other":{"message":"no"},"message":"yes"}"#), "yes");
        for none in
            ["{}", "", r#"{"message":17}"#, r#"{"message":null}"#, r#"["message","a"]"#, "{\"message\":\"x"]
        {
            assert_eq!(of(none), "", "{none}");
        }
        assert_eq!(of(r#"{"message":"kept","args":[{"a":1}, 2.5, true, null]}"#), "kept");
    }

    #[test]
    fn args_that_are_left_out_are_counted() {
        let mut dictionary = UnitDictionary::default();
        let mut of = |text: &str| parse_extdata(text.as_bytes(), &mut dictionary, &mut 0, None).1;
        assert_eq!(of(r#"{"args":{"a":1,"b":{"c":2},"d":[1,2]}}"#), (0, 3));
        assert_eq!(of(r#"{"args":[1,2,3,4]}"#), (0, 0));
        assert_eq!(of(r#"{"message":"no args"}"#), (0, 0));
    }

    #[test]
    fn args_keep_their_names_types_and_order() {
        let (mut dictionary, mut args) = (UnitDictionary::default(), ExtdataArgs::default());
        let mut texts = String::new();
        let mut of = |text: &str| {
            let sink = Some((&mut args.all, &mut texts));
            let (_, range) = parse_extdata(text.as_bytes(), &mut dictionary, &mut 0, sink);
            args.of_events = vec![range];
            let shown = |(name, value): &(TextId, StoredValue)| {
                let value = match value {
                    StoredValue::Known(id) => format!("{:?}", dictionary.texts.get(*id)),
                    StoredValue::Text(at, length) => {
                        format!("{} bytes", texts[*at as usize..][..*length as usize].len())
                    }
                    other => format!("{other:?}"),
                };
                format!("{}={value}", dictionary.texts.get(*name))
            };
            args.of(0).iter().map(shown).collect::<Vec<String>>().join(" ")
        };
        let all = r#"{"args":{"External id":5,"Input Dims":[[1, 2],{"a":3}],"d":"d\n","n":null,"b":true}}"#;
        assert_eq!(
            of(all),
            r#"External id=Int(5) Input Dims="[[1, 2],{\"a\":3}]" d="d\n" n="null" b=Bool(true)"#
        );
        assert_eq!(
            of(r#"{"message":"a","args":{"b":18446744073709551615,"c":-2.5}}"#),
            "b=Uint(18446744073709551615) c=Double(-2.5)"
        );
        assert_eq!(of(r#"{"args":{"five":"5","huge":1e999}}"#), r#"five="5" huge="1e999""#);
        let long = format!(r#"{{"args":{{"a":"{}"}}}}"#, "x".repeat(400));
        assert_eq!(of(&long), "a=400 bytes");
        for none in [
            "{\"args\":{}}      ",
            r#"{"args":[1,2,3,4]}"#,
            r#"{"args":"text of some"}"#,
            r#"{"args":-1234567}"#,
            r#"{"args":{"cut":1"#,
        ] {
            assert_eq!(of(none), "", "{none}");
        }
    }
}
