//! Converts values that may have another type than the schema states.

use rusqlite::types::ValueRef;
use std::borrow::Cow;

/// Maximum number of bytes that are kept of one text.
pub(super) const MAX_TEXT: usize = 1 << 20;

/// Returns an integer, whatever its stored type.
pub(super) fn int(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Integer(v) => Some(v),
        ValueRef::Real(v) if v.fract() == 0.0 && v.abs() < 9.0e18 => Some(v as i64),
        ValueRef::Text(v) => std::str::from_utf8(v).ok()?.trim().parse().ok(),
        _ => None,
    }
}

/// Returns a number, whatever its stored type.
pub(super) fn real(value: ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::Integer(v) => Some(v as f64),
        ValueRef::Real(v) => Some(v),
        ValueRef::Text(v) => std::str::from_utf8(v).ok()?.trim().parse().ok().filter(|v: &f64| v.is_finite()),
        _ => None,
    }
}

/// Returns an address: a number, or hexadecimal text. RocPD's column cannot hold addresses above `i64::MAX`.
pub(super) fn address(value: ValueRef<'_>) -> Option<i64> {
    let ValueRef::Text(text) = value else { return int(value) };
    let text = std::str::from_utf8(text).ok()?.trim();
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Returns the value as text; `None` for NULL.
pub(super) fn text(value: ValueRef<'_>) -> Option<Cow<'_, [u8]>> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(v) => Some(v.to_string().into_bytes().into()),
        ValueRef::Real(v) => Some(v.to_string().into_bytes().into()),
        ValueRef::Text(v) | ValueRef::Blob(v) => Some(v.into()),
    }
}
