//! The thread that looks after the folder: it may wait for a file system, the agent must not.

use super::agent::{Agent, Board, Equipment, Signals};
use super::folder::{Card, Claimed, DomainId, Folder, Listed};
use super::packet::Key;
use super::sockets::Sockets;
use super::{ProbeConfig, interfaces, tree};
use crate::claim::Claim;
use crate::output::{RankFolder, SideOutput};
use crate::{machine, session, warn};
use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(super) struct LookOut {
    config: ProbeConfig,
    signals: Signals,
    output: SideOutput,
    own: DomainId,
    /// Random number of this collector.
    holder: u128,
    network: u64,
}

/// Why an agent ended.
enum End {
    /// The command has ended.
    Stopped,
    /// Another one has the domain.
    Lost,
}

/// What a collector has that is the agent.
struct Office {
    folder: Folder,
    rank: u32,
    board: Arc<Mutex<Board>>,
    agent: JoinHandle<()>,
    /// Cards that were read.
    cards: HashMap<Listed, Card>,
    began: Instant,
    /// Other agents to ask that were there at some time.
    most_others: usize,
}

impl LookOut {
    pub(super) fn new(config: ProbeConfig, signals: Signals, output: SideOutput) -> LookOut {
        let own = DomainId::of(&config.domain);
        let network = std::fs::metadata("/proc/self/ns/net").map_or(0, |found| found.ino());
        LookOut { own, holder: 0, network, config, signals, output }
    }

    pub(super) fn run(mut self) {
        if let Err(error) = self.hold_office() {
            warn(format_args!("no clock probes: {error}"));
        }
        self.signals.measured.set();
        self.signals.ended.set();
    }

    /// Waits until nobody else of this domain measures, then does, to the end of the command.
    fn hold_office(&mut self) -> io::Result<()> {
        // A command that ends at once is not worth a file.
        if self.pause(self.config.pace.first_look) {
            return Ok(());
        }
        self.holder = session::random()?;
        // Collectors of a node that see each other leave the folder to one of them.
        let run = self.config.root.join(&self.config.run_id);
        let of = format!("{}\n{}", run.display(), self.own);
        let _claim = loop {
            match Claim::take("clocks", &of) {
                Ok(claim) => break claim,
                Err(_) if self.pause(self.config.pace.retry) => return Ok(()),
                Err(_) => {}
            }
        };
        let run = RankFolder::of_run(&self.config.root, &self.config.run_id, self.config.share_group);
        let run = Arc::new(run.make()?);
        loop {
            let folder = Folder::make(&run, self.config.share_group, self.own)?;
            let Some(rank) = self.take_office(&folder)? else { return Ok(()) };
            match self.open_office(folder, rank) {
                Ok(office) => {
                    if let End::Stopped = self.look_out(office) {
                        return Ok(());
                    }
                }
                Err((folder, error)) => {
                    folder.leave(rank, self.holder, self.config.pace.expiry);
                    return Err(error);
                }
            }
        }
    }

    /// Takes the domain: at once if nobody has it or its holder is dead, else when that is so. Returns the
    /// rank under which the domain is known; `None` if the command has ended before.
    fn take_office(&self, folder: &Folder) -> io::Result<Option<u32>> {
        loop {
            let now = machine::boottime();
            let mut claimed =
                Claimed { holder: self.holder, network: self.network, rank: self.config.rank, beat: now };
            match folder.claimed()? {
                None if folder.claim(&claimed)? => return Ok(Some(claimed.rank)),
                // It was taken just now, or holds nonsense.
                None if folder.claimed()?.is_none() => {
                    folder.claim_again(&claimed)?;
                    return Ok(Some(claimed.rank));
                }
                None => {}
                Some(before) if self.is_over(&before, now) => {
                    claimed.rank = claimed.rank.min(before.rank);
                    folder.claim_again(&claimed)?;
                    return Ok(Some(claimed.rank));
                }
                Some(_) => {}
            }
            if self.pause(self.config.pace.retry) {
                return Ok(None);
            }
        }
    }

    /// Whether the holder of the domain is gone. One that shares our network namespace would have the claim
    /// that we have. Its time is of our own clock.
    fn is_over(&self, claimed: &Claimed, now: i64) -> bool {
        let age = now.saturating_sub(claimed.beat);
        claimed.holder == self.holder
            || claimed.network == self.network && self.network != 0
            || age < 0
            || age.unsigned_abs() > self.config.pace.expiry.as_nanos() as u64
    }

    /// Opens the sockets, tells the others of them, and starts the agent.
    fn open_office(&self, folder: Folder, rank: u32) -> Result<Office, (Folder, io::Error)> {
        match self.equip(&folder, rank) {
            Ok((board, agent)) => {
                let (cards, began) = (HashMap::new(), Instant::now());
                Ok(Office { folder, rank, board, agent, cards, began, most_others: 0 })
            }
            Err(error) => Err((folder, error)),
        }
    }

    fn equip(&self, folder: &Folder, rank: u32) -> io::Result<(Arc<Mutex<Board>>, JoinHandle<()>)> {
        let choice = &self.config.choice;
        let addresses = interfaces::addresses(choice.interface.as_ref()).map_err(io::Error::other)?;
        let bound = Sockets::bind(&addresses, choice.ports, self.holder as u64);
        let sockets = bound.map_err(io::Error::other)?;
        let card = Card { domain: self.config.domain.clone(), addresses: sockets.addresses() };
        let key = self.agree(folder, rank, &card)?;
        let board = Arc::new(Mutex::new(Board::default()));
        // Of an earlier office.
        [&self.signals.lost, &self.signals.measured].iter().for_each(|signal| signal.clear());
        let equipment = Equipment {
            domain: self.config.domain.clone(),
            key,
            sockets,
            answers_per_second: choice.rate,
            pace: self.config.pace,
            clock: self.config.clock,
            board: Arc::clone(&board),
            signals: self.signals.clone(),
        };
        let agent = Agent::new(equipment, self.output.clone());
        let thread = std::thread::Builder::new().name("rpd-probes".to_owned());
        Ok((board, thread.spawn(move || agent.run())?))
    }

    /// Publishes the card, and agrees with the others on a secret: one that was there before the card may
    /// have been that of agents that were leaving.
    fn agree(&self, folder: &Folder, rank: u32, card: &Card) -> io::Result<Key> {
        folder.secret()?;
        folder.publish(rank, card)?;
        folder.secret()
    }

    /// Looks who else is there, and says that the agent lives, until it has to end.
    fn look_out(&self, mut office: Office) -> End {
        let pace = self.config.pace;
        let mut look = pace.first_look;
        let mut beat = Instant::now() + pace.beat;
        let end = loop {
            self.find_candidates(&mut office);
            if self.pause(look) {
                break End::Stopped;
            }
            look = (look * 2).min(pace.period);
            if Instant::now() >= beat {
                beat = Instant::now() + pace.beat;
                if !self.beat(&office) {
                    break End::Lost;
                }
            }
        };
        match end {
            End::Stopped => office.folder.leave(office.rank, self.holder, pace.expiry),
            End::Lost => self.signals.lost.set(),
        }
        self.signals.wake.set();
        let _ = office.agent.join();
        let answered = office.board.lock().unwrap_or_else(PoisonError::into_inner).answered;
        let long_enough = office.began.elapsed() > 2 * self.config.pace.period;
        if matches!(end, End::Stopped) && answered == 0 && office.most_others > 0 && long_enough {
            warn(format_args!(
                "no clock probes from this node: none of {} others answered; is UDP let through, and is this \
                 the right --probe-interface?",
                office.most_others
            ));
        }
        end
    }

    /// Says that the agent lives. False if another one has taken its place. What cannot be read or written
    /// now may be later.
    fn beat(&self, office: &Office) -> bool {
        match office.folder.claimed() {
            Ok(Some(claimed)) if claimed.holder != self.holder => return false,
            Ok(_) => {}
            Err(_) => return true,
        }
        let (holder, network, rank) = (self.holder, self.network, office.rank);
        let _ = office.folder.claim_again(&Claimed { holder, network, rank, beat: machine::boottime() });
        true
    }

    /// Tells the agent whom to ask.
    fn find_candidates(&self, office: &mut Office) {
        let Ok(listed) = office.folder.list() else { return };
        let Some(own) = listed.iter().position(|agent| agent.domain == self.own) else { return };
        office.most_others = office.most_others.max(own);
        let silent = office.board.lock().unwrap_or_else(PoisonError::into_inner).silent.clone();
        let mut candidates = Vec::new();
        for (place, number) in tree::candidates(own).into_iter().enumerate() {
            let Some(agent) = listed.get(number) else { continue };
            // The parent, and one that does not answer, may have another address by now.
            let look_again = place == 0 || silent.contains(&agent.domain);
            if (look_again || !office.cards.contains_key(agent))
                && let Some(card) = office.folder.card(*agent)
            {
                office.cards.insert(*agent, card);
            }
            if let Some(card) = office.cards.get(agent) {
                candidates.push((agent.domain, card.clone()));
            }
        }
        office.board.lock().unwrap_or_else(PoisonError::into_inner).candidates = candidates;
        self.signals.wake.set();
    }

    /// Waits. Whether the command has ended.
    fn pause(&self, time: Duration) -> bool {
        self.signals.stop.wait(Instant::now() + time)
    }
}
