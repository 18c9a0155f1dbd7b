/// Maximum number of tracks of one file.
pub(super) const MAX_TRACKS: usize = 1 << 20;
/// Maximum number of processes of one file.
pub(super) const MAX_PROCESSES: usize = 4096;
