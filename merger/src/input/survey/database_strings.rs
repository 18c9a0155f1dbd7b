//! Strings of a table set.

use super::input_survey::InputSurvey;
use super::table_set_reader::TableSetReader;
use crate::input::{KeySpace, StringPieces, text_of};
use crate::strings::{StringHash, hash};
use rpd_collectives::RegionNames;
use rpd_rocpd::read::{Piece, ReadError, TakeRows};
use rpd_shard::model::rocpd;

/// Strings of a table set.
pub(super) struct TableSetStrings {
    pub(super) keys: KeySpace,
    /// Position and hash of each string.
    pub(super) hashes: Vec<(u32, StringHash)>,
    /// Pieces that contain the strings and can be read.
    pub(super) readable: StringPieces,
    /// Names of regions that are collectives and messages.
    pub(super) names: RegionNames,
}

impl TableSetReader<'_> {
    /// Reads the strings.
    pub(super) fn strings(&self, survey: &mut InputSurvey) -> TableSetStrings {
        let mut space = KeySpace::default();
        let mut hashes = Vec::new();
        let mut names = RegionNames::default();
        let mut readable = StringPieces { table_set: self.table_set, table: 0, pieces: Vec::new() };
        let Some(place) = self.found.position(rocpd::STRING) else {
            return TableSetStrings { keys: space, hashes, readable, names };
        };
        readable.table = place;
        for piece in &self.found.tables[place].pieces {
            self.each_string(place, piece, &mut |piece, rows| {
                let rows = match rows {
                    Ok(rows) => rows,
                    Err(error) => return survey.lose_to(rocpd::STRING, &error, true),
                };
                readable.pieces.push(piece.clone());
                rows.keys.ranges(rows.len).iter().for_each(|(first, next)| space.add_keys(*first, *next));
                let texts = rows.column("string");
                hashes
                    .extend((hashes.len() as u32..).zip((0..rows.len).map(|i| hash(text_of(texts.get(i))))));
                survey.names_mpi |=
                    (0..rows.len).any(|i| InputSurvey::is_mpi_function(text_of(texts.get(i))));
                (0..rows.len).for_each(|i| names.add(rows.keys.get(i), text_of(texts.get(i))));
                *survey.rows_read.entry(rocpd::STRING).or_default() += rows.len as u64;
            });
        }
        TableSetStrings { keys: space, hashes, readable, names }
    }

    /// Passes the strings of a piece to `take`; page by page if the piece contains the largest possible id.
    fn each_string(&self, place: usize, piece: &Piece, take: &mut TakeRows<'_>) {
        let name = &self.found.tables[place].table.name;
        self.database.each(self.table_set, place, piece, &mut |piece, rows| {
            let checked = rows.and_then(|rows| self.ends_before_the_last_id(name, &rows).map(|()| rows));
            match checked {
                Err(ReadError::LastId { .. }) if piece.is_divisible() => {
                    piece.split().iter().for_each(|part| self.each_string(place, part, take));
                }
                rows => take(piece, rows),
            }
        });
    }
}
