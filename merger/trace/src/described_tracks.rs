//! Which processes and lanes the current file of a unit describes. Each file describes those that it shows.

use super::item::{EARLIER_CALLS_LANE, UnitLayout};
use rpd_run::ProcessIdentity;

/// Records for each process and lane the last file that describes it.
pub(super) struct DescribedTracks<'a> {
    layout: &'a UnitLayout,
    /// Number of the current file, from 1.
    file: u32,
    processes: Vec<u32>,
    /// By track and lane.
    lanes: Vec<Vec<u32>>,
    /// Lanes for calls of earlier files, by track.
    earlier_calls: Vec<u32>,
}

impl<'a> DescribedTracks<'a> {
    pub(super) fn new(layout: &'a UnitLayout) -> DescribedTracks<'a> {
        DescribedTracks {
            layout,
            file: 0,
            processes: vec![0; layout.processes.len()],
            lanes: vec![Vec::new(); layout.tracks.len()],
            earlier_calls: vec![0; layout.tracks.len()],
        }
    }

    /// Begins a file, which describes nothing yet.
    pub(super) fn begin_file(&mut self) {
        self.file += 1;
    }

    /// Returns whether the file describes a lane.
    #[inline]
    pub(super) fn has_lane(&self, track: u32, lane: u32) -> bool {
        let described = match lane {
            EARLIER_CALLS_LANE => self.earlier_calls.get(track as usize),
            lane => self.lanes.get(track as usize).and_then(|lanes| lanes.get(lane as usize)),
        };
        described == Some(&self.file)
    }

    /// Records that the file describes a lane of a track of the layout.
    pub(super) fn add_lane(&mut self, track: u32, lane: u32) {
        if lane == EARLIER_CALLS_LANE {
            self.earlier_calls[track as usize] = self.file;
            return;
        }
        let lanes = &mut self.lanes[track as usize];
        lanes.resize(lanes.len().max(lane as usize + 1), 0);
        lanes[lane as usize] = self.file;
    }

    /// Records that the file describes a process. Returns the process and where it ran, if the file did not
    /// describe it yet.
    pub(super) fn add_process(&mut self, process: u32) -> Option<(&'a ProcessIdentity, String)> {
        let found = self.layout.processes.get(process as usize)?;
        let last = self.processes.get_mut(process as usize)?;
        if std::mem::replace(last, self.file) == self.file {
            return None;
        }
        let host = if found.lacks_host() { "an unknown host" } else { &found.host };
        let description = match found.id {
            // Rows that no process claims.
            0 => format!("on {host}"),
            _ => format!("process {} on {host}", found.pid),
        };
        Some((found, description))
    }
}
