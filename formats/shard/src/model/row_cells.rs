//! Types of the fields of typed rows, and their conversion to [`Value`].

use super::columns::{int, real, reference, stack, string, text, time};
use super::table::{Column, TableId};
use super::time::LocalNs;
use super::value::Value;
use serde::Deserialize;

/// Key of a row of table `TABLE`, within its source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowKey<const TABLE: u16>(i64);

impl<const TABLE: u16> RowKey<TABLE> {
    /// Returns the key with number `key`, from 1. A row may be referred to before it is added.
    pub fn new(key: i64) -> RowKey<TABLE> {
        RowKey(key)
    }

    /// Returns the key as a number.
    pub fn get(self) -> i64 {
        self.0
    }
}

/// Id of a string within a shard, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StringId(pub i64);

/// An id that links the events of a call with those of the work that the call launched. 0 is no link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StackId(pub i64);

impl StackId {
    /// No link.
    pub const NONE: StackId = StackId(0);

    /// Converts an unsigned id. Ids above `i64::MAX` keep their bits, since they are only compared.
    pub fn from_unsigned(id: u64) -> StackId {
        StackId(id as i64)
    }
}

/// A whole number. RocPD has signed 64-bit integers: an unsigned number above `i64::MAX` is stored as REAL.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize)]
#[serde(untagged)]
pub enum WholeNumber {
    /// Stored unchanged.
    Signed(i64),
    /// Stored as REAL above `i64::MAX`.
    Unsigned(u64),
}

impl From<i64> for WholeNumber {
    fn from(number: i64) -> WholeNumber {
        WholeNumber::Signed(number)
    }
}

impl From<u64> for WholeNumber {
    fn from(number: u64) -> WholeNumber {
        WholeNumber::Unsigned(number)
    }
}

/// The value of a field.
pub(super) trait RowCell {
    /// Returns the value as it is stored in a row.
    fn value(&self) -> Value<'_>;

    /// Describes a column of such values.
    fn column(name: &str) -> Column;
}

impl<C: RowCell> RowCell for Option<C> {
    #[inline]
    fn value(&self) -> Value<'_> {
        self.as_ref().map_or(Value::Null, C::value)
    }

    fn column(name: &str) -> Column {
        C::column(name).nullable()
    }
}

impl<const TABLE: u16> RowCell for RowKey<TABLE> {
    #[inline]
    fn value(&self) -> Value<'_> {
        Value::Int(self.0)
    }

    fn column(name: &str) -> Column {
        reference(name, TableId(TABLE)).not_null()
    }
}

impl RowCell for StringId {
    #[inline]
    fn value(&self) -> Value<'_> {
        Value::Int(self.0)
    }

    fn column(name: &str) -> Column {
        string(name).not_null()
    }
}

impl RowCell for StackId {
    #[inline]
    fn value(&self) -> Value<'_> {
        Value::Int(self.0)
    }

    fn column(name: &str) -> Column {
        stack(name).not_null()
    }
}

impl RowCell for LocalNs {
    #[inline]
    fn value(&self) -> Value<'_> {
        Value::Int(self.0)
    }

    fn column(name: &str) -> Column {
        time(name).not_null()
    }
}

impl RowCell for WholeNumber {
    #[inline]
    fn value(&self) -> Value<'_> {
        match *self {
            WholeNumber::Signed(number) => Value::Int(number),
            WholeNumber::Unsigned(number) => {
                i64::try_from(number).map_or(Value::Real(number as f64), Value::Int)
            }
        }
    }

    fn column(name: &str) -> Column {
        int(name).not_null()
    }
}

impl RowCell for f64 {
    #[inline]
    fn value(&self) -> Value<'_> {
        Value::Real(*self)
    }

    fn column(name: &str) -> Column {
        real(name).not_null()
    }
}

impl RowCell for &[u8] {
    #[inline]
    fn value(&self) -> Value<'_> {
        Value::Text(self)
    }

    fn column(name: &str) -> Column {
        text(name).not_null()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_above_the_signed_range_are_stored_as_real() {
        let value = |number: u64| WholeNumber::from(number).value().to_owned();
        assert_eq!(value(i64::MAX as u64).as_value(), Value::Int(i64::MAX));
        assert_eq!(value(u64::MAX).as_value(), Value::Real(u64::MAX as f64));
        assert_eq!(WholeNumber::from(-1_i64).value(), Value::Int(-1));
        assert_eq!(StackId::from_unsigned(u64::MAX).value(), Value::Int(-1));
    }
}
