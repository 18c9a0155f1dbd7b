//! Values whose type is not what the schema states.

use rusqlite::types::ValueRef;
use std::borrow::Cow;

/// Longest text that is kept of one value, bytes.
pub(super) const MAX_TEXT: usize = 1 << 20;

/// A whole number, however it is stored.
pub(super) fn int(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Integer(v) => Some(v),
        ValueRef::Real(v) if v.fract() == 0.0 && v.abs() < 9.0e18 => Some(v as i64),
        ValueRef::Text(v) => std::str::from_utf8(v).ok()?.trim().parse().ok(),
        _ => None,
    }
}

/// A number, however it is stored.
pub(super) fn real(value: ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::Integer(v) => Some(v as f64),
        ValueRef::Real(v) => Some(v),
        ValueRef::Text(v) => std::str::from_utf8(v).ok()?.trim().parse().ok().filter(|v: &f64| v.is_finite()),
        _ => None,
    }
}

/// An address: a number, or one in hexadecimal text. Those above `i64::MAX` have no place in RocPD's column.
pub(super) fn address(value: ValueRef<'_>) -> Option<i64> {
    let ValueRef::Text(text) = value else { return int(value) };
    let text = std::str::from_utf8(text).ok()?.trim();
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The value as text; `None` for NULL.
pub(super) fn text(value: ValueRef<'_>) -> Option<Cow<'_, [u8]>> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(v) => Some(v.to_string().into_bytes().into()),
        ValueRef::Real(v) => Some(v.to_string().into_bytes().into()),
        ValueRef::Text(v) | ValueRef::Blob(v) => Some(v.into()),
    }
}
