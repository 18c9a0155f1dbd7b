//! How long the collecting thread waits between two looks into the rings.

use std::time::Duration;

/// Longest pause between two looks into rings whose producers do not wake us. A ring of 1 MiB holds more
/// than 10 ms of the busiest program that does anything else.
pub(super) const PAUSE_UNWOKEN: Duration = Duration::from_millis(10);
/// Longest pause where all producers wake us. What a program has recorded in this time is lost if it is
/// killed together with us.
const PAUSE_LONGEST: Duration = Duration::from_millis(500);
/// The pause after which a ring is taken to be as full as it was when its producer called.
const PAUSE_CALLED: Duration = Duration::from_millis(1);
/// A shorter pause than this is none.
const PAUSE_SHORTEST: Duration = Duration::from_micros(250);
/// Pause while there is no ring: new ones and the end of the command wake us.
pub(super) const PAUSE_EMPTY: Duration = Duration::from_secs(1);
/// How full the fullest ring should be when it is looked at. Looking more often takes CPU time from the
/// program; the rest of the ring is for the times when we are not given any.
const FULLNESS: f32 = 1.0 / 8.0;
/// The same for pauses in which producers wake us: so full that they seldom have to.
const FULLNESS_ASLEEP: f32 = FULLNESS / 4.0;

/// What was found after a pause.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingLook {
    /// The pause that was to be.
    pub(super) pause: Duration,
    /// A producer has ended the pause.
    pub(super) is_called: bool,
    /// How full the fullest ring was, from 0 to 1.
    pub(super) fullness: f32,
    /// The longest pause until the next look.
    pub(super) longest: Duration,
}

/// The longest pause after a look: `is_watched` says that every producer can wake us, `is_called` that one
/// has. One that writes that much will go on, and one that calls for nothing must not keep us busy.
pub(super) fn longest_pause(is_watched: bool, is_called: bool) -> Duration {
    if is_watched && !is_called { PAUSE_LONGEST } else { PAUSE_UNWOKEN }
}

/// The pause after which the fullest ring will be about as full as it should be, if all goes on as it
/// did. A burst shortens it at once, a lull lets it grow.
pub(super) fn next_pause(look: RingLook) -> Duration {
    // How long the ring of the call took to fill is not known.
    let last = if look.is_called { PAUSE_CALLED } else { look.pause };
    let last = last.clamp(PAUSE_SHORTEST, PAUSE_LONGEST);
    let for_fullness = |wanted: f32| last.mul_f32((wanted / look.fullness.max(f32::EPSILON)).min(2.0));
    let pause = match for_fullness(FULLNESS) {
        pause if pause > PAUSE_UNWOKEN => for_fullness(FULLNESS_ASLEEP).max(PAUSE_UNWOKEN),
        pause => pause,
    };
    if pause < PAUSE_SHORTEST { Duration::ZERO } else { pause.min(look.longest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(pause: Duration, fullness: f32, longest: Duration) -> Duration {
        next_pause(RingLook { pause, is_called: false, fullness, longest })
    }

    #[test]
    fn the_pause_follows_the_fullest_ring() {
        for longest in [PAUSE_UNWOKEN, PAUSE_LONGEST] {
            let mut pause = PAUSE_EMPTY;
            for _ in 0..20 {
                pause = look(pause, 0.0, longest);
            }
            assert_eq!(pause, longest);
            assert_eq!(look(PAUSE_UNWOKEN, 0.25, longest), PAUSE_UNWOKEN / 2);
            assert_eq!(look(Duration::from_millis(1), 0.9, longest), Duration::ZERO);
            // A program that goes on at one pace: the pause settles where the ring is as full as it should be.
            for (filled_per_ms, expected) in [(1.0 / 40.0, 4..=6), (1.0 / 8000.0, 200..=250)] {
                for _ in 0..50 {
                    pause = look(pause, pause.as_secs_f32() * 1e3 * filled_per_ms, longest);
                }
                let expected =
                    if longest == PAUSE_UNWOKEN && *expected.start() > 10 { 10..=10 } else { expected };
                assert!(expected.contains(&pause.as_millis()), "{pause:?}");
            }
        }
    }

    #[test]
    fn after_a_call_the_pauses_begin_anew() {
        let pause = PAUSE_LONGEST;
        for (fullness, expected) in [(0.0, 2 * PAUSE_CALLED), (FULLNESS, PAUSE_CALLED), (1.0, Duration::ZERO)]
        {
            let called = RingLook { pause, is_called: true, fullness, longest: longest_pause(true, true) };
            assert_eq!(next_pause(called), expected);
        }
        assert_eq!(look(pause, 0.0, longest_pause(false, false)), PAUSE_UNWOKEN);
    }

    /// So little is in a ring in any pause longer than today's that the rest of it is for late looks.
    #[test]
    fn nobody_sleeps_long_beside_a_ring_that_fills() {
        for per_ms in [1e-5f32, 1e-4, 1e-3, 1e-2] {
            let mut pause = PAUSE_EMPTY;
            for _ in 0..50 {
                pause = look(pause, (pause.as_secs_f32() * 1e3 * per_ms).min(1.0), PAUSE_LONGEST);
            }
            let filled = pause.as_secs_f32() * 1e3 * per_ms;
            assert!(
                filled <= FULLNESS && (pause <= PAUSE_UNWOKEN || filled <= 2.0 * FULLNESS_ASLEEP),
                "{pause:?}"
            );
        }
    }
}
