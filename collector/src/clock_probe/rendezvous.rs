//! The rendezvous thread, which does all file access for the clock probes. It may block on a slow file
//! system; the agent thread, which timestamps packets, must not.
//!
//! ```text
//! start:  read the root's file -> Join, or create it -> Lead
//! then:   sleep, until the agent reports that
//!           its root is silent -> read: another root -> Join; the same -> take over -> Lead
//!           its root has handed over -> write -> Lead
//! end:    the agent leaves; a root without an heir removes the file
//! ```

use super::agent::{AgentConfig, AgentMailbox, AgentOrder, AgentSignals, AgentThread};
use super::card::{AgentCard, AgentId};
use super::folder::{RendezvousFolder, RootAgent, RootFileContent};
use super::packet::PacketKey;
use super::sockets::ProbeSockets;
use super::{ProbeConfig, interfaces};
use crate::host::claim::NodeClaim;
use crate::host::random::random;
use crate::log::warn;
use crate::run_folder::RankFolder;
use crate::shard_output::SideOutput;
use rpd_files::HeldFolder;
use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Number of reads of an incomplete file before it is replaced.
const MAX_READINGS: u32 = 4;
/// Maximum interval between two reads of the file, for an agent that has heard of others and for one that
/// never has. Packets of other nodes hardly reach the latter, so more reads are useless.
const MAX_PAUSE: Duration = Duration::from_secs(60);
const MAX_PAUSE_ALONE: Duration = Duration::from_secs(3_600);

pub(super) struct RendezvousThread {
    config: ProbeConfig,
    signals: AgentSignals,
    output: SideOutput,
}

/// State of the collector that is the agent of its clock domain.
struct ActiveAgent {
    run: Arc<HeldFolder>,
    card: AgentCard,
    /// The secret of the run, if known.
    key: Option<PacketKey>,
    board: Arc<Mutex<AgentMailbox>>,
    /// The file names this agent, or did when it was written.
    leads: bool,
    /// The root that handed over to this agent, until the file names this agent.
    heir_of: Option<AgentId>,
    /// Silent roots that this agent has replaced.
    replaced: HashSet<AgentId>,
    /// Reads of the file since another agent was last heard, and the count of packets then.
    reads: u32,
    received: u64,
}

impl RendezvousThread {
    pub(super) fn new(config: ProbeConfig, signals: AgentSignals, output: SideOutput) -> RendezvousThread {
        RendezvousThread { config, signals, output }
    }

    pub(super) fn run(self) {
        if let Err(error) = self.measure_clocks() {
            warn(format_args!("no clock probes: {error}"));
        }
        self.signals.measured.set();
        self.signals.ended.set();
    }

    /// Waits until no other collector of the node measures, then measures until the end of the command.
    fn measure_clocks(&self) -> io::Result<()> {
        let pace = self.config.pace;
        // A very short command is not worth a file. Rank 0 starts a little earlier, so that it usually
        // becomes the root.
        let first_look = if self.config.rank == 0 { pace.first_look / 2 } else { pace.first_look };
        if self.pause(first_look) {
            return Ok(());
        }
        let path = self.config.root.join(&self.config.run_id);
        let domain = &self.config.domain;
        let of = format!("{}\n{}\n{}", path.display(), domain.boot_id, domain.time_namespace);
        let _claim = loop {
            match NodeClaim::take("clocks", &of) {
                Ok(claim) => break claim,
                Err(_) if self.pause(pace.retry) => return Ok(()),
                Err(_) => {}
            }
        };
        let run = Arc::new(self.open_run()?);
        let (mut active, sockets) = self.prepare_agent(run)?;
        let mut pause = pace.next_deadline;
        // The file system may recover from an error.
        let mut last_error = self.read_root_file(&mut active, None).err();
        while active.board().order.is_none() {
            if self.pause(pause) {
                return last_error.map_or(Ok(()), Err);
            }
            pause = (2 * pause).min(MAX_PAUSE);
            last_error = self.read_root_file(&mut active, None).err();
        }
        let agent = match self.start_agent(&active, sockets) {
            Ok(agent) => agent,
            Err(error) => {
                self.leave(&active, false);
                return Err(error);
            }
        };
        let began = Instant::now();
        self.serve_agent(&mut active);
        self.signals.wake.set();
        let has_handed_over = agent.join().unwrap_or(true);
        self.leave(&active, has_handed_over);
        self.warn_if_alone(&active, began);
        Ok(())
    }

    /// Opens the folder of the run, which usually exists because the shard is in it.
    fn open_run(&self) -> io::Result<HeldFolder> {
        let run = RankFolder::of_run(&self.config.root, &self.config.run_id, self.config.share_group);
        match run.open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => run.make(),
            opened => opened,
        }
    }

    fn prepare_agent(&self, run: Arc<HeldFolder>) -> io::Result<(ActiveAgent, ProbeSockets)> {
        let choice = &self.config.choice;
        let agent = AgentId(random()? as u64);
        let addresses = interfaces::addresses(choice.interface.as_ref())?;
        let sockets = ProbeSockets::bind(&addresses, choice.ports, agent.0)?;
        let card = AgentCard { agent, domain: self.config.domain.clone(), addresses: sockets.addresses() };
        if !card.is_sound() {
            return Err(io::Error::other("the boot id of this node is too long"));
        }
        let (board, replaced) = (Arc::default(), HashSet::new());
        let active = ActiveAgent {
            run,
            card,
            key: None,
            board,
            leads: false,
            heir_of: None,
            replaced,
            reads: 0,
            received: 0,
        };
        Ok((active, sockets))
    }

    /// Starts the agent thread. Its first order is in the mailbox.
    fn start_agent(&self, active: &ActiveAgent, sockets: ProbeSockets) -> io::Result<JoinHandle<bool>> {
        let key = active.key.clone().ok_or_else(|| io::Error::other("there is no secret of the run"))?;
        let config = AgentConfig {
            domain: self.config.domain.clone(),
            card: active.card.clone(),
            key,
            sockets,
            replies_per_second: self.config.choice.rate,
            pace: self.config.pace,
            clock: self.config.clock,
            board: Arc::clone(&active.board),
            signals: self.signals.clone(),
        };
        let agent = AgentThread::new(config, self.output.clone());
        let thread = std::thread::Builder::new().name("rpd-probes".to_owned());
        thread.spawn(move || agent.run())
    }

    /// Sleeps until the agent thread reports or the command ends, without file operations or wake-ups.
    fn serve_agent(&self, active: &mut ActiveAgent) {
        loop {
            self.signals.news.wait_for_either(&self.signals.stop);
            if self.signals.stop.is_set() {
                return;
            }
            self.signals.news.clear();
            let inherits_from = active.board().inherits_from.take();
            // A file that cannot be read or written now may be accessible later.
            let _ = match inherits_from {
                Some(from) => self.inherit(active, from),
                None => self.read_root_file_again(active),
            };
        }
    }

    /// Orders the agent thread to join the tree of a root.
    fn join(&self, active: &mut ActiveAgent, root: RootAgent) -> io::Result<()> {
        active.leads = false;
        active.key = Some(root.key.clone());
        active.board().order = Some(AgentOrder::Join(root));
        self.signals.wake.set();
        Ok(())
    }

    /// Orders the agent thread to be the root, which the file names.
    fn lead(&self, active: &mut ActiveAgent, root: RootAgent) -> io::Result<()> {
        active.leads = true;
        active.key = Some(root.key.clone());
        active.board().order = Some(AgentOrder::Lead(root.key));
        self.signals.wake.set();
        Ok(())
    }

    /// Reads the file again because the root does not reply. Waits longer after each read in vain.
    fn read_root_file_again(&self, active: &mut ActiveAgent) -> io::Result<()> {
        let received = active.board().received;
        if received != active.received {
            (active.reads, active.received) = (0, received);
        }
        if active.reads > 0 {
            let longest = if received > 0 { MAX_PAUSE } else { MAX_PAUSE_ALONE };
            let pause = self.config.pace.next_deadline.saturating_mul(1 << active.reads.min(16)).min(longest);
            if self.pause(pause) {
                return Ok(());
            }
        }
        let mut board = active.board();
        let silent = board.silent_root.take().filter(|_| board.is_orphan);
        drop(board);
        // The agent thread may have found an agent since.
        let Some(silent) = silent else { return Ok(()) };
        active.reads += 1;
        self.read_root_file(active, Some(silent))
    }

    /// Reads the file of the root. Becomes the root if there is no file, or if the file names the `silent`
    /// root.
    fn read_root_file(&self, active: &mut ActiveAgent, silent: Option<AgentId>) -> io::Result<()> {
        for reading in 1..=MAX_READINGS {
            let folder = match self.open_folder(active) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                opened => Some(opened?),
            };
            let found = folder.as_ref().map_or(Ok(RootFileContent::Nothing), RendezvousFolder::read_root)?;
            match (found, folder) {
                (RootFileContent::Nothing, _) => {
                    let root = active.as_root()?;
                    match self.make_folder(active).and_then(|folder| folder.create_root(&root)) {
                        Ok(true) => return self.lead(active, root),
                        // Another agent was first.
                        Ok(false) => {}
                        // A root that ended has just removed the folder.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => return Err(error),
                    }
                }
                (RootFileContent::Nonsense, _) if reading < MAX_READINGS => {
                    if self.pause(self.config.pace.next_deadline / 3) {
                        return Ok(());
                    }
                }
                (RootFileContent::Nonsense, Some(folder)) => return self.take_over(active, &folder, None),
                (RootFileContent::Root(root), _) if root.card.agent == active.card.agent => {
                    return self.lead(active, root);
                }
                (RootFileContent::Root(root), Some(folder)) if silent == Some(root.card.agent) => {
                    return self.take_over(active, &folder, Some(root));
                }
                (RootFileContent::Root(root), _) => return self.join(active, root),
                (RootFileContent::Nonsense, None) => {}
            }
        }
        Ok(())
    }

    /// Replaces a silent root, or an invalid file: each root at most once, and only once in total if no
    /// packet was ever received.
    fn take_over(
        &self,
        active: &mut ActiveAgent,
        folder: &RendezvousFolder,
        silent: Option<RootAgent>,
    ) -> io::Result<()> {
        let silent_id = silent.as_ref().map(|root| root.card.agent);
        let replaced = silent_id.unwrap_or_default();
        if active.replaced.contains(&replaced) || !active.replaced.is_empty() && active.received == 0 {
            return Ok(());
        }
        // The delays differ, so that one agent is first and the others join it.
        let random = random().unwrap_or_default() as u8;
        let delay = if self.config.rank == 0 { 0.0 } else { f32::from(random) / 256.0 };
        if self.pause(self.config.pace.next_deadline.mul_f32(0.7 * delay)) {
            return Ok(());
        }
        match folder.read_root()? {
            RootFileContent::Root(root) if Some(root.card.agent) != silent_id => self.join(active, root),
            // The file was removed in the meantime.
            RootFileContent::Nothing => self.read_root_file(active, None),
            found => {
                if let RootFileContent::Root(root) = found {
                    active.key = Some(root.key);
                }
                active.replaced.insert(replaced);
                self.write_over(active, folder)
            }
        }
    }

    /// Takes over from a root that handed over to this agent, unless the file names another agent by now.
    fn inherit(&self, active: &mut ActiveAgent, from: AgentId) -> io::Result<()> {
        active.heir_of = Some(from);
        // At the end of a job this agent ends next, and only has to remove the file.
        if self.pause(self.config.pace.next_deadline / 3) {
            return Ok(());
        }
        active.heir_of = None;
        let folder = self.open_folder(active)?;
        match folder.read_root()? {
            RootFileContent::Root(root) if root.card.agent == from => self.write_over(active, &folder),
            RootFileContent::Root(root) if root.card.agent != active.card.agent => self.join(active, root),
            _ => Ok(()),
        }
    }

    /// Writes the file and becomes the root at once, for agents that read it now. The agent that wrote last
    /// is the root.
    fn write_over(&self, active: &mut ActiveAgent, folder: &RendezvousFolder) -> io::Result<()> {
        let root = active.as_root()?;
        folder.replace_root(&root)?;
        self.lead(active, root)?;
        self.pause(self.config.pace.next_deadline / 3);
        match folder.read_root()? {
            RootFileContent::Root(root) if root.card.agent != active.card.agent => self.join(active, root),
            _ => Ok(()),
        }
    }

    fn open_folder(&self, active: &ActiveAgent) -> io::Result<RendezvousFolder> {
        RendezvousFolder::open(
            &active.run,
            #[cfg(test)]
            &self.config.counts,
        )
    }

    /// Creates the folder. Only a root does, so that no other agent leaves an empty folder.
    fn make_folder(&self, active: &ActiveAgent) -> io::Result<RendezvousFolder> {
        RendezvousFolder::make(
            &active.run,
            self.config.share_group,
            #[cfg(test)]
            &self.config.counts,
        )
    }

    /// Removes the file if this agent is the root without an heir, or was about to become the root.
    fn leave(&self, active: &ActiveAgent, has_handed_over: bool) {
        let own = Some(active.card.agent).filter(|_| active.leads && !has_handed_over);
        let inherited = active.heir_of.or(active.board().inherits_from);
        if self.is_killed() {
            return;
        }
        for root in own.into_iter().chain(inherited) {
            let _ =
                self.open_folder(active).and_then(|folder| folder.remove_root(root, self.config.pace.expiry));
        }
    }

    fn warn_if_alone(&self, active: &ActiveAgent, began: Instant) {
        let board = active.board();
        let (received, others) = (board.received, board.others);
        if received == 0 && others > 0 && began.elapsed() > 2 * self.config.pace.period {
            warn(format_args!(
                "no clock probes from this node: none of {others} others replied; is UDP let through, and is this \
                 the right --probe-interface?"
            ));
        }
    }

    #[cfg(test)]
    fn is_killed(&self) -> bool {
        self.signals.killed.is_set()
    }

    #[cfg(not(test))]
    fn is_killed(&self) -> bool {
        false
    }

    /// Waits. Returns whether the command has ended.
    fn pause(&self, time: Duration) -> bool {
        self.signals.stop.wait(Instant::now() + time)
    }
}

impl ActiveAgent {
    fn board(&self) -> MutexGuard<'_, AgentMailbox> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the content of the file that names this agent as the root. Keeps the secret if it is known.
    fn as_root(&mut self) -> io::Result<RootAgent> {
        let key = match &self.key {
            Some(key) => key.clone(),
            None => self.key.insert(PacketKey::random()?).clone(),
        };
        Ok(RootAgent { card: self.card.clone(), key })
    }
}
