//! Clocks of simulated nodes.

use crate::clock_probe::NodeClock;
use crate::host::machine;

/// One second, ns.
pub(super) const SECOND: i64 = 1_000_000_000;

/// A clock that is ahead.
fn ahead<const NS: i64>() -> i64 {
    machine::monotonic_raw() + NS
}

/// A `CLOCK_REALTIME` that is ahead, as the program and as the kernel reads it.
fn realtime_ahead<const NS: i64>() -> i64 {
    machine::realtime() + NS
}

fn stamp_ahead<const NS: i64>(stamp: i64) -> Option<i64> {
    Some(stamp + NS)
}

const fn clock<const RAW: i64, const REALTIME: i64>() -> NodeClock {
    NodeClock { raw: ahead::<RAW>, realtime: realtime_ahead::<REALTIME>, stamp: stamp_ahead::<REALTIME> }
}

/// Clocks of nodes 0 to 3 (and every fourth again). Their REALTIMEs are hours apart.
pub(super) const CLOCKS: [NodeClock; 4] = [
    clock::<0, 0>(),
    clock::<{ 7 * SECOND }, { 5 * 3600 * SECOND }>(),
    clock::<{ -SECOND / 3 }, { -3 * 3600 * SECOND }>(),
    clock::<{ 86_400 * SECOND }, { SECOND / 2 }>(),
];
/// How far their clocks of records are ahead of the machine's, ns: a different time for each.
pub(super) const AHEAD: [i64; 4] = [0, 7 * SECOND, -SECOND / 3, 86_400 * SECOND];
