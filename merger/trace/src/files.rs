//! Assembles files from pieces: every rank writes its own part of each file.

use super::compressed_pieces::{COMPRESSION_LEVEL, CompressedPiece};
use super::file_note::FileNotes;
use super::index::{self, FileFacts};
use super::item::EventCounts;
use super::spool::{ItemSpool, unreadable_again};
use super::time_slices::TimeSlices;
use crate::options::TraceFormat;
use rayon::prelude::*;
use rpd_comm::{Comm, agree_on_result, all_gather_values};
use rpd_console::Failure;
use rpd_files::{open_input, open_or_create_output};
use rpd_perfetto::{Checksum, GZIP_HEAD, gzip_piece, gzip_tail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Number of time slices for which ranks exchange counts at once.
const MAX_FILES_AT_ONCE: usize = 1024;
/// Number of bytes that are read at once for a checksum.
const READ_BYTES: usize = 1 << 20;

/// Properties of all files: format, time slices, and the relation to the wall clock.
#[derive(Clone)]
pub(super) struct FileFrame {
    pub(super) format: TraceFormat,
    pub(super) windows: TimeSlices,
    /// T0, ns in job time.
    pub(super) t0: i64,
    /// Difference between ns since 1970 and job time, if it is known.
    pub(super) realtime_minus_job: Option<i64>,
}

impl FileFrame {
    /// Returns the compressed bytes before the pieces, and the checksum of their content.
    fn head(
        &self,
        notes: &FileNotes,
        window: usize,
        part: &FilePart,
    ) -> Result<(Vec<u8>, Checksum), Failure> {
        let start = self.windows.get(window).map_or(0, |(from, _)| from);
        let mut head = self.format.head(start.saturating_sub(self.t0), self.wall_clock(start));
        head.extend(notes.encode(self, window, part));
        let mut out = GZIP_HEAD.to_vec();
        let checksum = compress(&head, &mut out)?;
        Ok((out, checksum))
    }

    /// Returns the bytes after the pieces.
    fn tail(&self, before: Checksum) -> Result<Vec<u8>, Failure> {
        let mut out = Vec::new();
        let tail = self.format.tail();
        let whole = if tail.is_empty() { before } else { before.then(compress(tail, &mut out)?) };
        out.extend_from_slice(&gzip_tail(whole));
        Ok(out)
    }

    /// Converts a job time to ns since 1970.
    pub(super) fn wall_clock(&self, ns: i64) -> Option<i64> {
        self.realtime_minus_job.map(|more| ns.saturating_add(more))
    }
}

fn compress(bytes: &[u8], out: &mut Vec<u8>) -> Result<Checksum, Failure> {
    gzip_piece(bytes, COMPRESSION_LEVEL, out)
        .map_err(|error| Failure::internal(format!("a piece cannot be compressed: {error}")))
}

/// Position of this rank's pieces in a file, and the content of the whole file without head and tail.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FilePart {
    /// Bytes of the ranks before this one.
    before: u64,
    /// Bytes of all ranks.
    bytes: u64,
    checksum: Checksum,
    pub(super) tally: EventCounts,
}

impl FilePart {
    /// Returns the size of the pieces of all ranks before compression, bytes.
    pub(super) fn raw_bytes(&self) -> u64 {
        self.checksum.length
    }
}

/// The pieces of one rank in a file.
#[derive(Serialize, Deserialize)]
struct RankPart {
    bytes: u64,
    /// Checksum and length before compression, bytes.
    crc: u32,
    length: u64,
    tally: EventCounts,
}

/// Exchanges the sizes of the parts of all files. All ranks must call this.
pub(super) fn agree_on_parts(
    comm: &impl Comm,
    pieces: &[CompressedPiece],
    tallies: &[EventCounts],
) -> Result<Vec<FilePart>, Failure> {
    let mut parts = Vec::with_capacity(tallies.len());
    let mut rest = pieces;
    for (chunk, tallies) in tallies.chunks(MAX_FILES_AT_ONCE).enumerate() {
        let mut mine = Vec::with_capacity(tallies.len());
        for (place, tally) in tallies.iter().enumerate() {
            let own;
            (own, rest) = split_window(rest, chunk * MAX_FILES_AT_ONCE + place);
            let bytes = own.iter().map(|piece| u64::from(piece.length)).sum();
            let whole = own.iter().map(CompressedPiece::checksum).fold(Checksum::default(), Checksum::then);
            mine.push(RankPart { bytes, crc: whole.crc, length: whole.length, tally: *tally });
        }
        let all = all_gather_values(comm, &mine)?;
        for place in 0..tallies.len() {
            let mut part = FilePart::default();
            for (rank, theirs) in all.iter().enumerate() {
                let Some(RankPart { bytes, crc, length, tally }) = theirs.get(place) else { continue };
                part.before += if rank < comm.rank() { *bytes } else { 0 };
                part.bytes += bytes;
                part.checksum = part.checksum.then(Checksum { crc: *crc, length: *length });
                part.tally.add(tally);
            }
            parts.push(part);
        }
    }
    Ok(parts)
}

/// Splits off the pieces of a time slice, which must be the first that remains.
fn split_window(pieces: &[CompressedPiece], window: usize) -> (&[CompressedPiece], &[CompressedPiece]) {
    pieces.split_at(pieces.partition_point(|piece| piece.window as usize <= window))
}

/// Writes this rank's part of all files and returns the facts of all files on rank 0. All ranks must call this.
///
/// `path` returns the path of a file that does not exist yet or has parts of other ranks.
pub(super) fn write_files(
    comm: &impl Comm,
    (frame, notes): (&FileFrame, &FileNotes),
    (pieces, spool): (&[CompressedPiece], &ItemSpool),
    parts: &[FilePart],
    path: &(impl Fn(usize) -> PathBuf + Sync),
) -> Result<Vec<FileFacts>, Failure> {
    let (rank, size) = (comm.rank(), comm.size());
    let is_mine = |window: usize| window % size == rank;
    let written = parts.par_iter().enumerate().try_for_each(|(window, part)| {
        let first = pieces.partition_point(|piece| (piece.window as usize) < window);
        let (own, _) = split_window(pieces.get(first..).unwrap_or_default(), window);
        if own.is_empty() && !is_mine(window) {
            return Ok(());
        }
        let path = path(window);
        let file = open_or_create_output(&path, 0o600);
        let file = file.map_err(|error| Failure::write(&path, &error))?;
        let put = |bytes: &[u8], place: u64| {
            file.write_all_at(bytes, place).map_err(|error| Failure::write(&path, &error))
        };
        let (head, checksum) = frame.head(notes, window, part)?;
        if is_mine(window) {
            put(&head, 0)?;
            put(&frame.tail(checksum.then(part.checksum))?, head.len() as u64 + part.bytes)?;
        }
        let mut place = head.len() as u64 + part.before;
        let mut bytes = Vec::new();
        for piece in own {
            bytes.resize(piece.length as usize, 0);
            spool.read(piece.place, &mut bytes)?;
            put(&bytes, place)?;
            place += bytes.len() as u64;
        }
        file.sync_all().map_err(|error| Failure::write(&path, &error))
    });
    agree_on_result(comm, written)?;
    // From here on, the files contain the parts of all ranks.
    let mine: Vec<(usize, &FilePart)> =
        parts.iter().enumerate().filter(|(window, _)| is_mine(*window)).collect();
    let facts: Result<Vec<FileFacts>, Failure> = mine
        .par_iter()
        .map(|(window, part)| {
            let (bytes, sha256) = hash_file(&path(*window))?;
            let frame_bytes = frame.head(notes, *window, part)?.1.length + frame.format.tail().len() as u64;
            let raw_bytes = frame_bytes + part.raw_bytes();
            Ok(FileFacts { window: *window, tally: part.tally, bytes, raw_bytes, sha256 })
        })
        .collect();
    index::gather_files(comm, agree_on_result(comm, facts)?)
}

/// Returns the length and the SHA-256 of a file.
fn hash_file(path: &Path) -> Result<(u64, [u8; 32]), Failure> {
    let read = || -> std::io::Result<(u64, [u8; 32])> {
        let mut file = open_input(path)?;
        let mut hash = Sha256::new();
        let mut bytes = vec![0; READ_BYTES];
        let mut length = 0;
        loop {
            let count = file.read(&mut bytes)?;
            if count == 0 {
                return Ok((length, hash.finalize().into()));
            }
            length += count as u64;
            hash.update(bytes.get(..count).unwrap_or_default());
        }
    };
    read().map_err(|error| unreadable_again(path, &error))
}
