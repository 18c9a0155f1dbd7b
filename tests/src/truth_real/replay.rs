//! What the job would have been without some of its delays: its calls, replayed with the durations that its ranks logged.
//!
//! The dependencies are those that the program itself knows. The n-th message of a pair of ranks is that of the n-th
//! receive, since each program uses one communicator and tag for a pair.
//!
//! ```text
//! enter = exit of the call before + logged time between them - removed delays
//! exit  = max(enter, latest enter of the calls it waits for) + logged transfer
//! ```

use super::logs::{LoggedRange, RankLog};
use std::collections::BTreeMap;

/// Rank and index of a call.
type CallId = (usize, usize);

/// The calls of a job with their dependencies.
pub struct Replay<'a> {
    logs: &'a [RankLog],
    /// Calls that each call waits for, by rank and index.
    needs: Vec<Vec<Vec<CallId>>>,
}

/// Times of a replayed job, ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplayedJob {
    /// From the first begin of a rank to the last end.
    pub length_ns: i64,
    /// Waits of all ranks, but for those in MPI_Init and MPI_Finalize.
    pub waits_ns: i64,
    /// Waits in MPI_Init.
    pub init_waits_ns: i64,
    /// Waits in MPI_Finalize.
    pub finalize_waits_ns: i64,
}

impl<'a> Replay<'a> {
    /// Finds what each call waits for.
    ///
    /// # Errors
    /// If the partner of a call is in no log.
    pub fn new(logs: &'a [RankLog]) -> Result<Replay<'a>, String> {
        let (mut sends, mut posts) = (BTreeMap::<_, Vec<CallId>>::new(), BTreeMap::<_, Vec<CallId>>::new());
        let mut collectives = BTreeMap::new();
        for (rank, log) in logs.iter().enumerate() {
            for (at, call) in log.calls.iter().enumerate() {
                for to in &call.sends {
                    sends.entry((rank as u32, *to)).or_default().push((rank, at));
                }
                for from in &call.posts {
                    posts.entry((*from, rank as u32)).or_default().push((rank, at));
                }
                if let Some(circle) = &call.circle {
                    collectives.insert((circle.as_str(), call.number, rank as u32), (rank, at));
                }
            }
        }
        let mut received = BTreeMap::new();
        let mut sent = BTreeMap::new();
        let mut needs = Vec::new();
        for (rank, log) in logs.iter().enumerate() {
            let mut of_rank = Vec::new();
            for call in &log.calls {
                let mut of_call = Vec::new();
                let missing = |what| format!("{} of rank {rank}: {what}", call.call);
                for from in &call.receives {
                    let channel = (*from, rank as u32);
                    let number = next(&mut received, channel);
                    let send = sends.get(&channel).and_then(|calls| calls.get(number));
                    of_call.push(*send.ok_or_else(|| missing("its message was not sent"))?);
                }
                for to in &call.sends {
                    let channel = (rank as u32, *to);
                    let number = next(&mut sent, channel);
                    if call.synchronous {
                        let post = posts.get(&channel).and_then(|calls| calls.get(number));
                        of_call.push(*post.ok_or_else(|| missing("its message was not received"))?);
                    }
                }
                for other in call.waits_for.iter().filter(|other| **other != rank as u32) {
                    let key = (call.circle.as_deref().unwrap_or_default(), call.number, *other);
                    of_call.push(*collectives.get(&key).ok_or_else(|| missing("a rank did not enter"))?);
                }
                // Where a rank left before another one entered, it did not wait for it.
                of_call.retain(|(rank, at)| logs[*rank].calls[*at].enter_ns <= call.exit_ns);
                of_rank.push(of_call);
            }
            needs.push(of_rank);
        }
        Ok(Replay { logs, needs })
    }

    /// Replays the job without the delays that `removes` selects by rank and range.
    ///
    /// # Errors
    /// If ranks wait for each other.
    pub fn without(&self, removes: impl Fn(u32, &LoggedRange) -> bool) -> Result<ReplayedJob, String> {
        let locals: Vec<Vec<i64>> = self.logs.iter().map(|log| local_times(log, &removes)).collect();
        // Enters of the calls that are reached, and the exit of the call before.
        let mut enters: Vec<Vec<i64>> =
            self.logs.iter().zip(&locals).map(|(log, local)| vec![log.start_ns + local[0]]).collect();
        let mut job = ReplayedJob::default();
        let mut ends = vec![None; self.logs.len()];
        let mut is_moving = true;
        while is_moving {
            is_moving = false;
            for rank in 0..self.logs.len() {
                while ends[rank].is_none() {
                    let at = enters[rank].len() - 1;
                    let reached = |(other, call): &CallId| enters[*other].get(*call).copied();
                    let Some(late) = self.needs[rank][at].iter().map(reached).collect::<Option<Vec<i64>>>()
                    else {
                        break;
                    };
                    is_moving = true;
                    let enter = enters[rank][at];
                    let ready = late.into_iter().fold(enter, i64::max);
                    let name = self.logs[rank].calls[at].circle.as_deref();
                    match name {
                        Some("init") => job.init_waits_ns += ready - enter,
                        Some("finalize") => job.finalize_waits_ns += ready - enter,
                        _ => job.waits_ns += ready - enter,
                    }
                    let next = ready + self.transfer_ns(rank, at) + locals[rank][at + 1];
                    if at + 1 < self.logs[rank].calls.len() {
                        enters[rank].push(next);
                    } else {
                        ends[rank] = Some(next);
                    }
                }
            }
        }
        let ends: Option<Vec<i64>> = ends.into_iter().collect();
        let end = ends.ok_or("ranks wait for each other")?.into_iter().max().unwrap_or(0);
        job.length_ns = end - self.logs.iter().map(|log| log.start_ns).min().unwrap_or(0);
        Ok(job)
    }

    /// Time of a call after the latest enter that it waited for.
    fn transfer_ns(&self, rank: usize, at: usize) -> i64 {
        let call = &self.logs[rank].calls[at];
        let late = self.needs[rank][at].iter().map(|(rank, at)| self.logs[*rank].calls[*at].enter_ns).max();
        call.exit_ns - late.unwrap_or(call.enter_ns).max(call.enter_ns)
    }
}

/// The number of the next message of a channel.
fn next(numbers: &mut BTreeMap<(u32, u32), usize>, channel: (u32, u32)) -> usize {
    let number = numbers.entry(channel).or_default();
    *number += 1;
    *number - 1
}

/// Times before each call and after the last one, without removed delays.
fn local_times(log: &RankLog, removes: impl Fn(u32, &LoggedRange) -> bool) -> Vec<i64> {
    let begins = std::iter::once(log.start_ns).chain(log.calls.iter().map(|call| call.exit_ns));
    let ends = log.calls.iter().map(|call| call.enter_ns).chain(std::iter::once(log.end_ns));
    let removed = |begin: i64, end: i64| -> i64 {
        let inside = |range: &&LoggedRange| range.end_ns >= begin && range.end_ns <= end;
        let ranges = log.ranges.iter().filter(inside).filter(|range| removes(log.rank, range));
        ranges.map(|range| range.planted_ns).sum()
    };
    begins.zip(ends).map(|(begin, end)| end - begin - removed(begin, end)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::logs::LoggedCall;
    use super::*;

    fn call(name: &str, enter_ns: i64, exit_ns: i64) -> LoggedCall {
        let text = format!(r#"{{"call":"{name}","enter_ns":{enter_ns},"exit_ns":{exit_ns}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn collective(enter_ns: i64, exit_ns: i64) -> LoggedCall {
        LoggedCall {
            circle: Some("world".to_owned()),
            waits_for: vec![0, 1],
            ..call("MPI_Barrier", enter_ns, exit_ns)
        }
    }

    fn log(rank: u32, calls: Vec<LoggedCall>, ranges: Vec<LoggedRange>) -> RankLog {
        let end_ns = calls.last().unwrap().exit_ns;
        RankLog { rank, host: "n0".to_owned(), start_ns: 0, end_ns, calls, ranges }
    }

    fn range(end_ns: i64, planted_ns: i64) -> LoggedRange {
        LoggedRange { range: "work".to_owned(), step: 0, begin_ns: 0, end_ns, planted_ns }
    }

    /// Rank 0 works 30 of which 20 are planted, then sends; rank 1 works 15, receives, and both meet.
    fn job() -> Vec<RankLog> {
        let send = LoggedCall { sends: vec![1], ..call("MPI_Send", 30, 31) };
        let receive = LoggedCall { posts: vec![0], receives: vec![0], ..call("MPI_Recv", 15, 33) };
        vec![
            log(0, vec![send, collective(31, 41)], vec![range(30, 20)]),
            log(1, vec![receive, collective(40, 41)], vec![range(15, 0)]),
        ]
    }

    #[test]
    fn a_replay_that_removes_nothing_gives_the_logged_times() {
        let logs = job();
        let replayed = Replay::new(&logs).unwrap().without(|_, _| false).unwrap();
        // Rank 1 waits 15 for the message, rank 0 then 9 at the barrier.
        assert_eq!((replayed.length_ns, replayed.waits_ns), (41, 24));
    }

    #[test]
    fn a_removed_delay_moves_all_that_waited_for_it() {
        let logs = job();
        let replayed = Replay::new(&logs).unwrap().without(|rank, _| rank == 0).unwrap();
        // Rank 0 sends at 10, rank 1 receives from 15 to 18 and enters the barrier at 25; rank 0 entered at 11.
        assert_eq!((replayed.length_ns, replayed.waits_ns), (26, 14));
    }

    #[test]
    fn a_large_send_waits_for_its_receive() {
        let mut logs = job();
        logs[0].calls[0] = LoggedCall { sends: vec![1], synchronous: true, ..call("MPI_Send", 10, 31) };
        let replayed = Replay::new(&logs).unwrap().without(|_, _| false).unwrap();
        assert_eq!(replayed.waits_ns, 5 + 9);
    }

    #[test]
    fn a_message_without_its_send_is_an_error() {
        let mut logs = job();
        logs[0].calls[0].sends.clear();
        assert!(Replay::new(&logs).is_err());
    }
}
