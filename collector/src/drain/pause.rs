//! Computes how long the collecting thread sleeps between two reads of the rings.

use std::time::Duration;

/// Maximum pause if producers cannot wake the collecting thread. A ring of 1 MiB holds more than 10 ms of the
/// busiest program that does anything else.
pub(super) const MAX_PAUSE_WITHOUT_WAKEUP: Duration = Duration::from_millis(10);
/// Maximum pause if all producers can wake the collecting thread. What a program recorded in this time is
/// lost if it is killed together with the collector. Times in ticks are converted between two looks: where the
/// kernel changes the rate of its clock by 1 ppm, they are wrong by a quarter of a millionth of the pause at most,
/// 88 ns.
pub(super) const MAX_PAUSE: Duration = Duration::from_millis(350);
/// Assumed time in which a ring became as full as it was when its producer called.
const ASSUMED_FILL_TIME: Duration = Duration::from_millis(1);
/// A shorter pause is skipped.
const MIN_PAUSE: Duration = Duration::from_micros(250);
/// Pause while there is no ring. New rings and the end of the command wake the thread.
pub(super) const PAUSE_WITHOUT_RINGS: Duration = Duration::from_secs(1);
/// Target fill level of the fullest ring. More frequent reads take CPU time from the program. The rest of the
/// ring is for times in which the collector gets no CPU time.
const TARGET_FILL: f32 = 1.0 / 8.0;
/// Target fill level for pauses in which producers can wake the thread, which they do at [`TARGET_FILL`]: low enough that
/// they rarely have to, and otherwise as high as possible, because each wake-up takes a core from a rank.
const TARGET_FILL_ASLEEP: f32 = TARGET_FILL * 2.0 / 3.0;

/// State of the rings after a pause.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingLook {
    /// The intended pause.
    pub(super) pause: Duration,
    /// A producer ended the pause.
    pub(super) is_called: bool,
    /// Fill level of the fullest ring, from 0 to 1.
    pub(super) fullness: f32,
    /// Maximum length of the next pause.
    pub(super) longest: Duration,
}

/// Returns the maximum pause. `is_watched` if every producer can wake the thread, `is_called` if one did. A
/// producer that fills its ring goes on doing so, and one that calls for no reason must not keep the
/// collector busy.
pub(super) fn longest_pause(is_watched: bool, is_called: bool) -> Duration {
    if is_watched && !is_called { MAX_PAUSE } else { MAX_PAUSE_WITHOUT_WAKEUP }
}

/// Returns the pause after which the fullest ring should reach the target, if the rate stays the same. A
/// burst shortens the pause at once; a quiet phase lengthens it gradually.
pub(super) fn next_pause(look: RingLook) -> Duration {
    // How long the ring of the producer took to fill is unknown.
    let last = if look.is_called { ASSUMED_FILL_TIME } else { look.pause };
    let last = last.clamp(MIN_PAUSE, MAX_PAUSE);
    let for_fullness = |wanted: f32| last.mul_f32((wanted / look.fullness.max(f32::EPSILON)).min(2.0));
    let pause = match for_fullness(TARGET_FILL) {
        pause if pause > MAX_PAUSE_WITHOUT_WAKEUP => {
            for_fullness(TARGET_FILL_ASLEEP).max(MAX_PAUSE_WITHOUT_WAKEUP)
        }
        pause => pause,
    };
    if pause < MIN_PAUSE { Duration::ZERO } else { pause.min(look.longest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(pause: Duration, fullness: f32, longest: Duration) -> Duration {
        next_pause(RingLook { pause, is_called: false, fullness, longest })
    }

    #[test]
    fn the_pause_follows_the_fullest_ring() {
        for longest in [MAX_PAUSE_WITHOUT_WAKEUP, MAX_PAUSE] {
            let mut pause = PAUSE_WITHOUT_RINGS;
            for _ in 0..20 {
                pause = look(pause, 0.0, longest);
            }
            assert_eq!(pause, longest);
            assert_eq!(look(MAX_PAUSE_WITHOUT_WAKEUP, 0.25, longest), MAX_PAUSE_WITHOUT_WAKEUP / 2);
            assert_eq!(look(Duration::from_millis(1), 0.9, longest), Duration::ZERO);
            // At a constant rate the pause settles where the ring reaches the target.
            for (filled_per_ms, expected) in
                [(1.0 / 40.0, 4..=6), (1.0 / 480.0, 39..=41), (1.0 / 3600.0, 290..=310)]
            {
                for _ in 0..50 {
                    pause = look(pause, pause.as_secs_f32() * 1e3 * filled_per_ms, longest);
                }
                let expected = if longest == MAX_PAUSE_WITHOUT_WAKEUP && *expected.start() > 10 {
                    10..=10
                } else {
                    expected
                };
                assert!(expected.contains(&pause.as_millis()), "{pause:?}");
            }
        }
    }

    #[test]
    fn after_a_call_the_pauses_begin_anew() {
        let pause = MAX_PAUSE;
        for (fullness, expected) in
            [(0.0, 2 * ASSUMED_FILL_TIME), (TARGET_FILL, ASSUMED_FILL_TIME), (1.0, Duration::ZERO)]
        {
            let called = RingLook { pause, is_called: true, fullness, longest: longest_pause(true, true) };
            assert_eq!(next_pause(called), expected);
        }
        assert_eq!(look(pause, 0.0, longest_pause(false, false)), MAX_PAUSE_WITHOUT_WAKEUP);
    }

    /// A pause fills so little of a ring that the rest suffices for late reads.
    #[test]
    fn nobody_sleeps_long_beside_a_ring_that_fills() {
        for per_ms in [1e-5f32, 1e-4, 1e-3, 1e-2] {
            let mut pause = PAUSE_WITHOUT_RINGS;
            for _ in 0..50 {
                pause = look(pause, (pause.as_secs_f32() * 1e3 * per_ms).min(1.0), MAX_PAUSE);
            }
            let filled = pause.as_secs_f32() * 1e3 * per_ms;
            assert!(
                filled <= TARGET_FILL
                    && (pause <= MAX_PAUSE_WITHOUT_WAKEUP || filled <= 1.1 * TARGET_FILL_ASLEEP),
                "{pause:?}"
            );
        }
    }
}
