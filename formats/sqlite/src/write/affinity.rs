//! What SQLite does to a value before it stores it in a column of a declared type.

use super::number;
use rpd_shard::model::Value;

/// What a column prefers to store, from its declared type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Affinity {
    /// `INT` in its type: integers where nothing is lost.
    Integer,
    /// `CHAR`, `CLOB`, `TEXT`: numbers become text.
    Text,
    /// Any other type: like `Integer`.
    Numeric,
    /// `REAL`, `FLOA`, `DOUB`: like `Integer`, but integers read as floating point numbers.
    Real,
    /// `BLOB` or no type: as it comes.
    Blob,
}

impl Affinity {
    /// The affinity of a column declared with this type name, by SQLite's rules: the first of
    /// `INT`; `CHAR`, `CLOB`, `TEXT`; `BLOB`; `REAL`, `FLOA`, `DOUB` that it contains.
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

    /// Whether numbers are stored as numbers, and text that reads as one becomes one.
    pub(super) fn prefers_numbers(self) -> bool {
        matches!(self, Affinity::Integer | Affinity::Numeric | Affinity::Real)
    }
}

/// A value as it is in a record.
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

/// What SQLite stores for `value` in a column of this affinity. NaN is NULL.
///
/// One difference is on purpose: SQLite makes the number 12 of the text `12\0ab` in a numeric column, and
/// here it stays the text that it is.
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

/// An integer that takes 8 bytes is stored as floating point number in a column of those.
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
