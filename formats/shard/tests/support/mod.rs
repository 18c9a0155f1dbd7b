//! Records that several tests use.

use rpd_shard::record::{ClockDomain, Probe, ProbeBurst};

/// Returns a burst of three probes; `t1` is the send time of all three.
pub(crate) fn burst(t1: i64) -> ProbeBurst {
    let domain = |boot_id: &str| ClockDomain { boot_id: boot_id.into(), time_namespace: 1 };
    let probe = |way| Probe { t1, t2: t1 + 1_000_000 + way, t3: t1 + 1_000_009 + way, t4: t1 + 9 + 2 * way };
    let best = vec![probe(40), probe(41), probe(90)];
    ProbeBurst {
        from: domain("b"),
        to: domain("a"),
        sent: 20,
        answered: 19,
        spread: 12,
        best,
        kernel_times: false,
    }
}
