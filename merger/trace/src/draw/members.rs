//! Counts the members of a JSON value without storing them.

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt::{Formatter, Result as FmtResult};

/// Number of members of an object; 0 for any other value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct MemberCount(pub(super) u32);

impl<'de> Deserialize<'de> for MemberCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MemberCount, D::Error> {
        deserializer.deserialize_any(CountMembers)
    }
}

struct CountMembers;

impl<'de> Visitor<'de> for CountMembers {
    type Value = MemberCount;

    fn expecting(&self, f: &mut Formatter<'_>) -> FmtResult {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<MemberCount, A::Error> {
        let mut count: u32 = 0;
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            count = count.saturating_add(1);
        }
        Ok(MemberCount(count))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<MemberCount, A::Error> {
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(MemberCount(0))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<MemberCount, E> {
        Ok(MemberCount(0))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<MemberCount, E> {
        Ok(MemberCount(0))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<MemberCount, E> {
        Ok(MemberCount(0))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<MemberCount, E> {
        Ok(MemberCount(0))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<MemberCount, E> {
        Ok(MemberCount(0))
    }

    fn visit_unit<E: Error>(self) -> Result<MemberCount, E> {
        Ok(MemberCount(0))
    }
}
