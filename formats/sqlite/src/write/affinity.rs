//! Converts values as SQLite does before it stores them in a column of a declared type.

use super::number;
use rpd_shard::model::Value;

/// The storage class that a column prefers, derived from its declared type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Affinity {
    /// `INT` in the declared type: integers, if the conversion is lossless.
    Integer,
    /// `CHAR`, `CLOB` or `TEXT` in the declared type: numbers become text.
    Text,
    /// Any other type: like `Integer`.
    Numeric,
    /// `REAL`, `FLOA` or `DOUB` in the declared type: like `Integer`, but integers read as floating-point numbers.
    Real,
    /// `BLOB` in the declared type, or no declared type: values are stored unchanged.
    Blob,
}

impl Affinity {
    /// Returns the affinity of a column with this declared type. SQLite's rule is that the first match counts:
    /// `INT`; `CHAR`, `CLOB` or `TEXT`; `BLOB`; `REAL`, `FLOA` or `DOUB`.
    pub fn of(declared_type: &str) -> Affinity {
        let name = declared_type.to_ascii_uppercase();
        let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        if has(&["INT"]) {
            Affinity::Integer
        } else if has(&["CHAR", "CLOB", "TEXT"]) {
            Affinity::Text
        } else if name.is_empty() || has(&["BLOB"]) {
            Affinity::Blob
        } else if has(&["REAL", "FLOA", "DOUB"]) {
            Affinity::Real
        } else {
            Affinity::Numeric
        }
    }

    /// Returns whether numbers are stored as numbers, and text that can be read as a number becomes one.
    pub(super) fn prefers_numbers(self) -> bool {
        matches!(self, Affinity::Integer | Affinity::Numeric | Affinity::Real)
    }
}

/// A value in the form that a record stores.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stored<'a> {
    Null,
    Int(i64),
    Real(f64),
    Text(&'a [u8]),
    Blob(&'a [u8]),
    /// Text made from a number.
    Number(number::Digits),
}

/// Returns what SQLite stores for `value` in a column of this affinity. NaN becomes NULL.
///
/// One difference is intentional: in a numeric column SQLite converts the text `12\0ab` to the number 12. Here it
/// remains text.
pub(super) fn store(value: Value<'_>, affinity: Affinity) -> Stored<'_> {
    match (value, affinity) {
        (Value::Null, _) => Stored::Null,
        (Value::Blob(v), _) => Stored::Blob(v),
        (Value::Int(v), Affinity::Text) => Stored::Number(number::Digits::of_int(v)),
        (Value::Int(v), Affinity::Real) => real_column(v),
        (Value::Int(v), _) => Stored::Int(v),
        (Value::Real(v), _) if v.is_nan() => Stored::Null,
        (Value::Real(v), Affinity::Text) => Stored::Number(number::Digits::of_real(v)),
        (Value::Real(v), Affinity::Blob) => Stored::Real(v),
        (Value::Real(v), _) => real(v, affinity),
        (Value::Text(v), Affinity::Text | Affinity::Blob) => Stored::Text(v),
        (Value::Text(v), _) => match number::parse(v) {
            None => Stored::Text(v),
            Some(number::Number::Int(number)) if affinity == Affinity::Real => real_column(number),
            Some(number::Number::Int(number)) => Stored::Int(number),
            Some(number::Number::Real(number)) => real(number, affinity),
        },
    }
}

/// Stores an integer that takes 8 bytes as a floating-point number, as SQLite does in a column of REAL affinity.
fn real_column(v: i64) -> Stored<'static> {
    let small = -(1 << 47)..1 << 47;
    if small.contains(&v) { Stored::Int(v) } else { Stored::Real(v as f64) }
}

fn real(v: f64, affinity: Affinity) -> Stored<'static> {
    match (number::integral(v), affinity) {
        (Some(int), Affinity::Real) => real_column(int),
        (Some(int), _) => Stored::Int(int),
        (None, _) => Stored::Real(v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_types() {
        let of = |names: &[&str]| names.iter().map(|n| Affinity::of(n)).collect::<Vec<_>>();
        assert_eq!(of(&["INTEGER", "bigint", "CHARINT", "POINT"]), [Affinity::Integer; 4]);
        assert_eq!(of(&["varchar(20)", "TEXT", "CLOB", "BLOBTEXT"]), [Affinity::Text; 4]);
        assert_eq!(of(&["", "BLOB", "REALBLOB"]), [Affinity::Blob; 3]);
        assert_eq!(of(&["REAL", "double precision", "FLOAT"]), [Affinity::Real; 3]);
        assert_eq!(of(&["JSONB", "NUMERIC", "BOOLEAN", "STRING"]), [Affinity::Numeric; 4]);
    }
}
