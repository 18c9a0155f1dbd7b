//! Encodes rows of any length.

use super::affinity::Stored;
use super::field::{Field, header_length, int_type};
use super::stage::push_varint;

/// The record of a row in pieces: header, then values.
pub(super) struct Record<'a> {
    header: Vec<u8>,
    values: Vec<Stored<'a>>,
    /// Number of bytes of header and values.
    pub(super) length: u64,
}

impl<'a> Record<'a> {
    pub(super) fn new(fields: &[Field<'a>], row: usize) -> Record<'a> {
        let values: Vec<Stored<'a>> = fields.iter().map(|field| field.stored(row)).collect();
        let mut types = Vec::with_capacity(values.len() * 2);
        let mut body = 0;
        for value in &values {
            let (serial, length) = serial_type(value);
            push_varint(&mut types, serial);
            body += length as u64;
        }
        let mut header = Vec::with_capacity(types.len() + 3);
        push_varint(&mut header, header_length(types.len() as u64));
        header.extend_from_slice(&types);
        let length = header.len() as u64 + body;
        Record { header, values, length }
    }

    /// Passes the record to `take`, piece by piece.
    pub(super) fn pieces(&self, mut take: impl FnMut(&[u8])) {
        take(&self.header);
        for value in &self.values {
            match value {
                Stored::Null => {}
                Stored::Int(v) => take(&v.to_be_bytes()[8 - int_type(*v).1..]),
                Stored::Real(v) => take(&v.to_be_bytes()),
                Stored::Text(v) | Stored::Blob(v) => take(v),
                Stored::Number(digits) => take(digits.as_bytes()),
            }
        }
    }
}

fn serial_type(value: &Stored<'_>) -> (u64, usize) {
    let bytes = |empty: u64, bytes: &[u8]| (empty + 2 * bytes.len() as u64, bytes.len());
    match value {
        Stored::Null => (0, 0),
        Stored::Int(v) => {
            let (serial, length) = int_type(*v);
            (u64::from(serial), length)
        }
        Stored::Real(_) => (7, 8),
        Stored::Text(v) => bytes(13, v),
        Stored::Blob(v) => bytes(12, v),
        Stored::Number(digits) => bytes(13, digits.as_bytes()),
    }
}
