/// Most tracks of one file.
pub(super) const MAX_TRACKS: usize = 1 << 20;
/// Most processes of one file.
pub(super) const MAX_PROCESSES: usize = 4096;
