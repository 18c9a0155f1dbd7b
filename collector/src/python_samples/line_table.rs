//! The line of an instruction, from the tables of code objects.

use super::layout::LineTableForm;

/// Bit of the first byte of an entry of [`LineTableForm::Locations`].
const ENTRY: u8 = 0x80;
/// Line difference that stands for no line in [`LineTableForm::Ranges`].
const NO_LINE: i8 = -128;

/// Returns the line of the instruction at a byte offset; `None` if the table has none for it. `first` is the first line of
/// the function.
pub(super) fn line_at(form: LineTableForm, table: &[u8], first: i32, offset: i64) -> Option<i32> {
    match form {
        LineTableForm::Increments => line_by_increments(table, first, offset),
        LineTableForm::Ranges => line_by_ranges(table, first, offset),
        LineTableForm::Locations => line_by_locations(table, first, offset),
    }
}

/// Pairs of a number of bytes and a difference of lines: the line is that of the last pair that starts at or before the
/// instruction.
fn line_by_increments(table: &[u8], first: i32, offset: i64) -> Option<i32> {
    let (mut line, mut at) = (first, 0);
    for pair in table.chunks_exact(2) {
        at += i64::from(pair[0]);
        if at > offset {
            break;
        }
        line = line.checked_add(i32::from(pair[1] as i8))?;
    }
    Some(line)
}

/// Pairs of a length in bytes and a difference of lines that applies to this length.
fn line_by_ranges(table: &[u8], first: i32, offset: i64) -> Option<i32> {
    let (mut line, mut end) = (first, 0);
    for pair in table.chunks_exact(2) {
        end += i64::from(pair[0]);
        let difference = pair[1] as i8;
        if difference != NO_LINE {
            line = line.checked_add(i32::from(difference))?;
        }
        if offset < end {
            return (difference != NO_LINE).then_some(line);
        }
    }
    // Before the first instruction of a frame, the index is negative.
    (offset < 0).then_some(first)
}

/// Entries of a byte with a kind and a length in instructions of two bytes, and, by kind, numbers of which the first may be
/// a difference of lines.
fn line_by_locations(table: &[u8], first: i32, offset: i64) -> Option<i32> {
    if offset < 0 {
        return Some(first);
    }
    let (mut line, mut end, mut rest) = (first, 0, table);
    while let [head, after @ ..] = rest {
        let kind = (head >> 3) & 15;
        end += (i64::from(head & 7) + 1) * 2;
        let difference = match kind {
            15 => None,
            13 | 14 => Some(signed(after)?),
            10..=12 => Some(i32::from(kind) - 10),
            _ => Some(0),
        };
        line = line.checked_add(difference.unwrap_or(0))?;
        if offset < end {
            return difference.map(|_| line);
        }
        let next = after.iter().position(|byte| byte & ENTRY != 0).unwrap_or(after.len());
        rest = after.get(next..)?;
    }
    None
}

/// Reads a number with its sign in the lowest bit, in groups of six bits, the lowest first.
fn signed(bytes: &[u8]) -> Option<i32> {
    let mut value = 0_u64;
    for (place, byte) in bytes.iter().take(6).enumerate() {
        value |= u64::from(byte & 63) << (6 * place);
        if byte & 64 == 0 {
            let size = i32::try_from(value >> 1).ok()?;
            return Some(if value & 1 == 1 { -size } else { size });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_form_has_its_lines() {
        // f() of three lines, as the compilers of 3.9, 3.10 and 3.12 encode it.
        let increments = [0, 1, 4, 1, 8, 255];
        let lines =
            |form, table: &[u8]| -> Vec<_> { (0..8).map(|at| line_at(form, table, 10, at * 2)).collect() };
        let (ten, eleven, twelve) = (Some(10), Some(11), Some(12));
        assert_eq!(
            lines(LineTableForm::Increments, &increments),
            [eleven, eleven, twelve, twelve, twelve, twelve, eleven, eleven]
        );
        let ranges = [4, 1, 8, 1, 2, 128_u8, 2, 255];
        assert_eq!(
            lines(LineTableForm::Ranges, &ranges),
            [eleven, eleven, twelve, twelve, twelve, twelve, None, eleven]
        );
        // Two instructions of line +1 in the one-line form, two of the long form with -1, one without a line, one short.
        let locations =
            [0x80 | 11 << 3 | 1, 4, 9, 0x80 | 14 << 3 | 1, 3, 0, 1, 2, 0x80 | 15 << 3, 0x80, 0x11];
        assert_eq!(
            lines(LineTableForm::Locations, &locations),
            [eleven, eleven, ten, ten, None, ten, None, None]
        );
        for form in [LineTableForm::Increments, LineTableForm::Ranges, LineTableForm::Locations] {
            assert_eq!(line_at(form, &[], 10, -2), ten);
        }
    }

    proptest! {
        #[test]
        fn any_table_is_read(table in proptest::collection::vec(any::<u8>(), 0..200), first: i32, offset in -4..2000_i64) {
            for form in [LineTableForm::Increments, LineTableForm::Ranges, LineTableForm::Locations] {
                let _ = line_at(form, &table, first, offset);
            }
        }
    }
}
