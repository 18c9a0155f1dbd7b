//! A single value with the dynamic type of SQLite.

use std::borrow::Cow;

/// A borrowed value. Text is bytes because SQLite does not guarantee UTF-8.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// SQL NULL.
    Null,
    /// A 64-bit integer.
    Int(i64),
    /// A floating point number. RocPD stores unsigned values above `i64::MAX` in this form.
    Real(f64),
    /// Text.
    Text(&'a [u8]),
    /// A blob.
    Blob(&'a [u8]),
}

/// An owned value, for columns in which rows differ in type.
#[derive(Clone, PartialEq, Debug)]
pub enum OwnedValue {
    /// SQL NULL.
    Null,
    /// A 64-bit integer.
    Int(i64),
    /// A floating point number.
    Real(f64),
    /// Text.
    Text(Box<[u8]>),
    /// A blob.
    Blob(Box<[u8]>),
}

impl OwnedValue {
    /// Borrows the value.
    pub fn as_value(&self) -> Value<'_> {
        match self {
            OwnedValue::Null => Value::Null,
            OwnedValue::Int(v) => Value::Int(*v),
            OwnedValue::Real(v) => Value::Real(*v),
            OwnedValue::Text(v) => Value::Text(v),
            OwnedValue::Blob(v) => Value::Blob(v),
        }
    }
}

impl Value<'_> {
    /// Copies the value.
    pub fn to_owned(self) -> OwnedValue {
        match self {
            Value::Null => OwnedValue::Null,
            Value::Int(v) => OwnedValue::Int(v),
            Value::Real(v) => OwnedValue::Real(v),
            Value::Text(v) => OwnedValue::Text(v.into()),
            Value::Blob(v) => OwnedValue::Blob(v.into()),
        }
    }

    /// Returns the value as a stack id, or `None` for NULL and values that are not numbers. RocPD stores unsigned
    /// ids above `i64::MAX` as REAL; equal ids stay equal.
    pub fn stack_id(self) -> Option<i64> {
        match self {
            Value::Int(v) => Some(v),
            Value::Real(v) if v >= 0.0 => Some(v as u64 as i64),
            _ => None,
        }
    }

    /// Returns text as a string; invalid UTF-8 becomes replacement characters.
    pub fn text_lossy(&self) -> Option<Cow<'_, str>> {
        match self {
            Value::Text(v) => Some(String::from_utf8_lossy(v)),
            _ => None,
        }
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(v: Option<i64>) -> Self {
        v.map_or(Value::Null, Value::Int)
    }
}

impl From<i64> for Value<'_> {
    fn from(v: i64) -> Self {
        Value::Int(v)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(v: &'a str) -> Self {
        Value::Text(v.as_bytes())
    }
}
