//! Estimates one time for all nodes of a job.
//!
//! [`align()`] is the algorithm. It turns [`ClockObservations`] of the clocks of a job into one [`DomainFit`]
//! for each clock domain, with a [`TimeMap`] and an error bound. It is pure: the same observations in any order
//! give the same maps, to the bit. docs/CLOCKS.md describes its guarantees. [`ClockFile`] reads offsets that a
//! site measured itself.
//!
//! Internally, the times of a domain are `f64` ns of its `CLOCK_MONOTONIC_RAW` since an origin of the domain
//! (`on_node`). An offset of days thus costs no precision. NTP occasionally changes the rates of BOOTTIME and
//! MONOTONIC, but not that of RAW.

mod align;
mod anchors;
mod bias;
mod causality;
mod certain_bounds;
mod clock_file;
mod collectives;
mod disconnected;
mod fit;
mod links;
mod locate;
mod method;
mod observations;
mod on_node;
mod posterior;
mod probes;
mod refuted;
mod repair;
mod robust;
mod smoother;
mod time_map;
mod track;

pub use align::align;
pub use clock_file::{ClockFile, NamedDomain};
pub use fit::{DomainFit, ErrorKnot};
pub use method::AlignMethod;
pub use observations::{
    AlignChoice, BurstTimes, ClockObservations, CollectiveObservation, ObservedWaits, RankInterval,
};
pub use robust::{median, slope};
pub use time_map::TimeMap;
