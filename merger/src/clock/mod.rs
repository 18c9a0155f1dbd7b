//! Phase 2: one time for all nodes.
//!
//! [`align`] is the algorithm: from [`Observations`] of the clocks of a job to one [`DomainFit`] per
//! clock domain, with its [`TimeMap`] and an error bar. It is pure: the same observations in any order
//! give the same maps, to the bit. docs/CLOCKS.md says what it promises.
//!
//! Nothing outside this room makes a [`rpd_shard::model::JobNs`].
//!
//! Inside, the times of a domain are `f64` ns of its `CLOCK_MONOTONIC_RAW` since an origin of its own
//! ([`on_node`]), so that an offset of days costs no precision. NTP changes the rates of BOOTTIME and
//! MONOTONIC now and then, but not of RAW.

mod align;
mod anchors;
mod bias;
mod bounds;
mod causality;
mod clocks;
mod collectives;
mod fit;
mod links;
mod locate;
mod observations;
mod on_node;
mod parts;
mod posterior;
mod probes;
mod refuted;
mod repair;
pub(crate) mod robust;
mod smoother;
mod time_map;
mod track;

pub use align::align;
pub use causality::{Causality, causality};
pub use clocks::{BestSets, Method, keep_best};
pub use fit::{BarKnot, DomainFit, Step};
pub use observations::{Align, Attendance, Burst, Meeting, Needs, Observations, Probe};
pub use repair::{Repaired, repair_causality};
pub use time_map::TimeMap;
