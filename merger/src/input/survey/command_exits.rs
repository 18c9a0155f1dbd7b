//! Exit codes and signals of a run's commands, grouped. Each collector records the exit of its command, traced or not.

use crate::input::survey::ProcessCrash;
use rpd_console::wording::{counted, noun, rank_ranges};
use rpd_shard::record::{Process, ProcessExit};
use serde::{Deserialize, Serialize};
use signal_hook::low_level::signal_name;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of kinds of exits that the summary prints; it counts the others.
const MAX_PRINTED: usize = 10;

/// Commands by exit code or signal: their number and their ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CommandExits(BTreeMap<ProcessExit, EndedCommands>);

/// Commands with the same exit code or signal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct EndedCommands {
    count: u64,
    /// Ranks of those commands that have one.
    ranks: BTreeSet<u32>,
    /// Process id, if it was only one command.
    pid: Option<i32>,
}

/// Commands with the same exit code or signal. If there is neither, the exit is unknown.
#[derive(Clone, Debug, Serialize)]
pub struct CommandExit {
    /// Exit code.
    pub code: Option<i32>,
    /// Signal number.
    pub signal: Option<i32>,
    /// Signal name, if the signal has one.
    pub signal_name: Option<&'static str>,
    /// Number of commands.
    pub commands: u64,
    /// Ranks of those commands that have one, ascending.
    pub ranks: Vec<u32>,
    /// Process id of the command, if it is the only one.
    #[serde(skip)]
    pub pid: Option<i32>,
}

impl CommandExits {
    /// Returns the exit of one command; empty if its collector was killed first.
    pub(super) fn of(command: Option<&Process>) -> CommandExits {
        let ended = command.and_then(|command| {
            let ranks = BTreeSet::from_iter(command.rank);
            Some((command.exit?, EndedCommands { count: 1, ranks, pid: Some(command.pid) }))
        });
        CommandExits(ended.into_iter().collect())
    }

    /// Adds the exits of another input or merge rank.
    pub fn join(&mut self, other: CommandExits) {
        for (exit, ended) in other.0 {
            let own = self.0.entry(exit).or_default();
            own.pid = ended.pid.filter(|_| own.count == 0);
            own.count += ended.count;
            own.ranks.extend(ended.ranks);
        }
    }

    /// Returns whether the command exits of a shard include the exit of this process of the same shard.
    pub fn include(&self, death: &ProcessCrash) -> bool {
        self.0.get(&death.exit()).is_some_and(|ended| ended.pid == Some(death.pid))
    }

    /// Returns the commands of each exit code and signal.
    pub fn list(self) -> Vec<CommandExit> {
        let listed = |(exit, ended): (ProcessExit, EndedCommands)| {
            let EndedCommands { count: commands, ranks, pid } = ended;
            let (code, signal) = match exit {
                ProcessExit::Code(code) => (Some(code), None),
                ProcessExit::Signal(signal) => (None, Some(signal)),
                ProcessExit::Unknown => (None, None),
            };
            let signal_name = signal.and_then(signal_name);
            CommandExit { code, signal, signal_name, commands, ranks: ranks.into_iter().collect(), pid }
        };
        self.0.into_iter().map(listed).collect()
    }
}

impl CommandExit {
    /// Returns whether this is the exit of a single command, and `death` describes the same process.
    pub fn is_of(&self, death: &ProcessCrash) -> bool {
        self.pid == Some(death.pid) && (self.code, self.signal) == (death.code, death.signal)
    }

    /// Returns a text such as `ranks 0-2 exit code 0`.
    fn text(&self, is_only: bool) -> String {
        let how = match (self.code, self.signal, self.signal_name) {
            (Some(code), ..) => format!("exit code {code}"),
            (None, Some(signal), Some(name)) => format!("signal {signal} ({name})"),
            (None, Some(signal), None) => format!("signal {signal}"),
            (None, None, _) => "in a way that is not known".to_owned(),
        };
        let with_rank = self.ranks.len() as u64;
        let commands = match self.commands.saturating_sub(with_rank) {
            _ if with_rank > 0 => format!("{} {}", noun(with_rank, "rank"), rank_ranges(&self.ranks)),
            1 if is_only => "the command".to_owned(),
            several => counted(several, "command"),
        };
        format!("{commands} {how}")
    }
}

/// Returns all exits in one line, lowest ranks first; `None` if every command ended with exit code 0.
pub(crate) fn exits_line(exits: &[CommandExit]) -> Option<String> {
    if exits.iter().all(|exit| exit.code == Some(0)) {
        return None;
    }
    let mut exits: Vec<&CommandExit> = exits.iter().collect();
    exits.sort_by_key(|exit| exit.ranks.first().copied().unwrap_or(u32::MAX));
    let mut texts: Vec<String> =
        exits.iter().take(MAX_PRINTED).map(|exit| exit.text(exits.len() == 1)).collect();
    if let Some(more @ 1..) = exits.len().checked_sub(MAX_PRINTED) {
        texts.push(format!("{more} more ways; rpd-merge --json lists all"));
    }
    Some(texts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exits(of: &[(Option<u32>, ProcessExit)]) -> Vec<CommandExit> {
        let mut all = CommandExits::default();
        for (rank, exit) in of {
            let ended = EndedCommands { count: 1, ranks: BTreeSet::from_iter(*rank), pid: Some(7) };
            all.join(CommandExits(BTreeMap::from([(*exit, ended)])));
        }
        all.list()
    }

    #[test]
    fn exits_are_grouped_in_the_order_of_their_ranks() {
        let mixed = [
            (0, ProcessExit::Code(0)),
            (3, ProcessExit::Signal(9)),
            (1, ProcessExit::Code(0)),
            (2, ProcessExit::Code(0)),
            (5, ProcessExit::Unknown),
        ];
        let line = exits_line(&exits(&mixed.map(|(rank, exit)| (Some(rank), exit))));
        let expected = "ranks 0-2 exit code 0; rank 3 signal 9 (SIGKILL); rank 5 in a way that is not known";
        assert_eq!(line.as_deref(), Some(expected));
        assert_eq!(
            exits_line(&exits(&[(None, ProcessExit::Code(3))])).as_deref(),
            Some("the command exit code 3")
        );
    }

    #[test]
    fn commands_that_all_ended_well_make_no_line() {
        assert_eq!(
            exits_line(&exits(&[(Some(0), ProcessExit::Code(0)), (None, ProcessExit::Code(0))])),
            None
        );
        assert_eq!(exits_line(&[]), None);
    }

    #[test]
    fn another_process_with_the_same_exit_code_is_not_the_command() {
        let only = exits(&[(None, ProcessExit::Code(1))]);
        let death = |pid| ProcessCrash { pid, code: Some(1), ..ProcessCrash::default() };
        assert!(only[0].is_of(&death(7)) && !only[0].is_of(&death(8)));
        let two = exits(&[(Some(0), ProcessExit::Code(1)), (Some(1), ProcessExit::Code(1))]);
        assert!(!two[0].is_of(&death(7)));
    }

    #[test]
    fn the_line_is_bounded() {
        let many: Vec<_> = (0..500).map(|rank| (Some(rank), ProcessExit::Code(rank as i32))).collect();
        let line = exits_line(&exits(&many)).unwrap_or_default();
        assert!(line.len() < 300 && line.ends_with("490 more ways; rpd-merge --json lists all"), "{line}");
    }
}
