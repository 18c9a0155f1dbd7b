//! The folder where the agents of a run find each other: `<run>/clocks`.
//!
//! ```text
//! secret            32 random bytes, the same for all; the user's alone
//! DOMAIN.agent      who is the agent of a clock domain, until when; only collectors of the domain care
//! RANK-DOMAIN.card  what the others need to know of the agent: in its name the order of all agents
//! ```
//!
//! The names alone give the tree, so that of a thousand cards an agent reads the few that it needs. Files
//! appear whole: they are written under another name first. The last agent to leave removes everything; files of
//! those that were killed go with it once they are old.

use super::interfaces::{MOST_ADDRESSES, is_global};
use super::packet::Key;
use rpd_files::FileRefused;
use rpd_shard::record::ClockDomain;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::time::Duration;
use twox_hash::XxHash3_128;

/// Its name in the run folder.
const NAME: &str = "clocks";
const SECRET: &str = "secret";
/// Files of agents that are looked at; there are no machines with as many nodes.
const MOST_LISTED: usize = 1 << 16;
/// Longest file.
const MOST_BYTES: u64 = 4096;
/// A shared file system may tell for so long when a file was written before.
const STALE: Duration = Duration::from_secs(60);
/// First line of a claim and of a card.
const CLAIM_TITLE: &str = "rpd clock agent 1";
const CARD_TITLE: &str = "rpd clock card 1";

/// A clock domain in names of files and, shorter, in packets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct DomainId(u128);

impl DomainId {
    pub(super) fn of(domain: &ClockDomain) -> DomainId {
        let text = format!("{}\n{}", domain.boot_id, domain.time_namespace);
        DomainId(XxHash3_128::oneshot(text.as_bytes()))
    }

    /// As in packets.
    pub(super) fn short(self) -> u64 {
        self.0 as u64
    }
}

impl std::fmt::Display for DomainId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// An agent, by the name of its card. Their order is that of the tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Listed {
    pub(super) rank: u32,
    pub(super) domain: DomainId,
}

/// Whose clocks an agent reads, and where it answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Card {
    pub(super) domain: ClockDomain,
    pub(super) addresses: Vec<SocketAddr>,
}

/// Who holds a clock domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Claimed {
    /// A random number of the agent.
    pub(super) holder: u128,
    /// Its network namespace: two of one domain cannot see each other otherwise.
    pub(super) network: u64,
    /// The lowest rank of the domain that was its agent.
    pub(super) rank: u32,
    /// `CLOCK_BOOTTIME` in ns when the agent last said that it lives: a clock of the domain.
    pub(super) beat: i64,
}

/// The folder, as one collector sees it.
#[derive(Debug)]
pub(super) struct Folder {
    run: Arc<rpd_files::HeldFolder>,
    entries: rpd_files::HeldFolder,
    shared: bool,
    own: DomainId,
}

impl Folder {
    /// Makes it below the run folder, if it is not there.
    pub(super) fn make(run: &Arc<rpd_files::HeldFolder>, shared: bool, own: DomainId) -> io::Result<Folder> {
        let mode = if shared { 0o750 } else { 0o700 };
        let (entries, is_new) = run.make_folder(NAME, mode)?;
        if !entries.is_own() {
            return Err(FileRefused::OtherOwner { owner: entries.owner() }.into());
        }
        if is_new && shared {
            // Whatever the umask says: it was asked for.
            entries.set_mode(mode)?;
        }
        Ok(Folder { run: Arc::clone(run), entries, shared, own })
    }

    /// The secret of the run. Makes one if there is none: of several collectors that do, one is first.
    pub(super) fn secret(&self) -> io::Result<Key> {
        if let Some(key) = self.read_secret()? {
            return Ok(key);
        }
        let mut bytes = [0; Key::BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        // Also where the group may read the rest.
        match self.put_new(SECRET, &bytes, 0o600) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.read_secret()?.ok_or_else(|| io::Error::other("the secret of the run is not whole"))
    }

    /// `None` where there is none, or not all of it yet.
    fn read_secret(&self) -> io::Result<Option<Key>> {
        let file = match self.entries.open_file(SECRET) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if file.metadata()?.mode() & 0o077 != 0 {
            return Err(io::Error::other("others may read the secret of the run"));
        }
        let mut bytes = Vec::new();
        file.take(MOST_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes.try_into().ok().map(Key::new))
    }

    /// Who holds the own domain; `None` where nobody does, or nothing that makes sense is said.
    pub(super) fn claimed(&self) -> io::Result<Option<Claimed>> {
        match self.read(&self.claim_name()) {
            Ok(text) => Ok(parse_claim(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes the own domain if it has no file. False if somebody was first.
    pub(super) fn claim(&self, claimed: &Claimed) -> io::Result<bool> {
        match self.put_new(&self.claim_name(), claim_text(claimed).as_bytes(), self.mode()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes the own domain from one that is gone, or says that its agent lives.
    pub(super) fn claim_again(&self, claimed: &Claimed) -> io::Result<()> {
        self.replace(&self.claim_name(), claim_text(claimed).as_bytes())
    }

    /// Tells the others of the own agent.
    pub(super) fn publish(&self, rank: u32, card: &Card) -> io::Result<()> {
        self.replace(&card_name(Listed { rank, domain: self.own }), card_text(card).as_bytes())
    }

    /// All agents in order, the own one included, each domain once.
    pub(super) fn list(&self) -> io::Result<Vec<Listed>> {
        let names = self.entries.names(MOST_LISTED)?;
        let mut listed: Vec<Listed> = names.iter().filter_map(|name| parse_name(name.to_str()?)).collect();
        listed.sort_unstable();
        let mut seen = std::collections::HashSet::new();
        listed.retain(|agent| seen.insert(agent.domain));
        Ok(listed)
    }

    /// What an agent tells; `None` where it is gone, or makes no sense.
    pub(super) fn card(&self, agent: Listed) -> Option<Card> {
        let card = parse_card(&self.read(&card_name(agent)).ok()?)?;
        (DomainId::of(&card.domain) == agent.domain).then_some(card)
    }

    /// Removes what this agent has put there, and if it was the last, everything. An agent without a sign of life
    /// for `expiry` is gone.
    pub(super) fn leave(&self, rank: u32, holder: u128, expiry: Duration) {
        if self.claimed().is_ok_and(|claimed| claimed.is_none_or(|claimed| claimed.holder == holder)) {
            let _ = self.entries.remove(card_name(Listed { rank, domain: self.own }));
            let _ = self.entries.remove(self.claim_name());
        }
        self.sweep(expiry + STALE);
        let left = self.entries.names(2).unwrap_or_default();
        if left.iter().all(|name| name == SECRET) {
            let _ = self.entries.remove(SECRET);
            let _ = self.run.remove_folder(NAME);
        }
    }

    /// Removes the files of agents that say that they live no more: they were killed. All times are those of the file
    /// system: the clocks of agents are not comparable.
    fn sweep(&self, silent: Duration) {
        // The own files were removed just now.
        let Ok(now) = self.entries.own_stat().map(|folder| folder.modified) else { return };
        let is_old = |name: &OsString| {
            let written = self.entries.stat(name).map(|file| file.modified);
            written.is_ok_and(|written| now.duration_since(written).is_ok_and(|age| age > silent))
        };
        let names = self.entries.names(MOST_LISTED).unwrap_or_default();
        let claimed =
            |name: &OsString| Some((name.to_str()?.strip_suffix(".agent")?.to_owned(), is_old(name)));
        let claims: HashMap<String, bool> = names.iter().filter_map(claimed).collect();
        for name in names.iter().filter(|name| *name != SECRET) {
            // A card is written once: whether its agent lives is in the claim.
            let card = name.to_str().and_then(parse_name);
            let claim = card.and_then(|card| claims.get(&card.domain.to_string()));
            if claim.copied().unwrap_or_else(|| is_old(name)) {
                let _ = self.entries.remove(name);
            }
        }
    }

    fn claim_name(&self) -> String {
        format!("{}.agent", self.own)
    }

    fn mode(&self) -> u32 {
        if self.shared { 0o640 } else { 0o600 }
    }

    fn read(&self, name: &str) -> io::Result<String> {
        let mut text = String::new();
        self.entries.open_file(name)?.take(MOST_BYTES).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Makes a file that is not there. It appears whole where the file system knows links.
    fn put_new(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let draft = self.draft(name, bytes, mode)?;
        let linked = self.entries.link(&draft, name);
        let _ = self.entries.remove(&draft);
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => self.write_new(name, bytes, mode),
            other => other,
        }
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let draft = self.draft(name, bytes, self.mode())?;
        self.entries.rename(&draft, name).inspect_err(|_| drop(self.entries.remove(&draft)))
    }

    /// A file under a name that nobody else takes.
    fn draft(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<String> {
        let draft = format!(".{name}.{:016x}", crate::session::random()? as u64);
        self.write_new(&draft, bytes, mode).inspect_err(|_| drop(self.entries.remove(&draft)))?;
        Ok(draft)
    }

    fn write_new(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let mut file = self.entries.create(name, mode)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(bytes)
    }
}

fn card_name(agent: Listed) -> String {
    format!("{:010}-{}.card", agent.rank, agent.domain)
}

fn parse_name(name: &str) -> Option<Listed> {
    let (rank, domain) = name.strip_suffix(".card")?.split_once('-')?;
    let plain = rank.len() == 10 && domain.len() == 32 && rank.bytes().all(|byte| byte.is_ascii_digit());
    let domain = u128::from_str_radix(domain, 16).ok().map(DomainId)?;
    plain.then_some(Listed { rank: rank.parse().ok()?, domain })
}

fn claim_text(claimed: &Claimed) -> String {
    let Claimed { holder, network, rank, beat } = claimed;
    format!("{CLAIM_TITLE}\nholder {holder:032x}\nnetwork {network}\nrank {rank}\nbeat {beat}\n")
}

fn parse_claim(text: &str) -> Option<Claimed> {
    let mut lines = text.lines();
    let title = lines.next();
    let mut value = |word: &str| lines.next()?.strip_prefix(word)?.strip_prefix(' ');
    let holder = u128::from_str_radix(value("holder")?, 16).ok()?;
    let network = value("network")?.parse().ok()?;
    let rank = value("rank")?.parse().ok()?;
    let beat = value("beat")?.parse().ok()?;
    (title == Some(CLAIM_TITLE)).then_some(Claimed { holder, network, rank, beat })
}

fn card_text(card: &Card) -> String {
    let ClockDomain { boot_id, time_namespace } = &card.domain;
    let boot_id: String = boot_id.chars().filter(|c| !c.is_control()).collect();
    let mut text = format!("{CARD_TITLE}\nboot {boot_id}\nnamespace {time_namespace}\n");
    card.addresses.iter().for_each(|address| text.push_str(&format!("address {address}\n")));
    text.push_str("end\n");
    text
}

fn parse_card(text: &str) -> Option<Card> {
    let mut lines = text.lines();
    lines.next().filter(|title| *title == CARD_TITLE)?;
    let boot_id = lines.next()?.strip_prefix("boot ")?.to_owned();
    let time_namespace = lines.next()?.strip_prefix("namespace ")?.parse().ok()?;
    let mut addresses = Vec::new();
    for line in lines {
        if line == "end" {
            return Some(Card { domain: ClockDomain { boot_id, time_namespace }, addresses });
        }
        let address: SocketAddr = line.strip_prefix("address ")?.parse().ok()?;
        let sound = is_global(address.ip()) && address.port() != 0 && addresses.len() < MOST_ADDRESSES;
        addresses.push(Some(address).filter(|_| sound)?);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::packet::{Kind, tests::packet};
    use std::fs;
    use std::path::Path;
    use std::sync::Barrier;

    const EXPIRY: Duration = Duration::from_secs(30);

    fn domain(time_namespace: u64) -> ClockDomain {
        ClockDomain { boot_id: "3ab1".to_owned(), time_namespace }
    }

    fn card(time_namespace: u64) -> Card {
        let addresses = vec!["10.0.0.1:4000".parse().unwrap(), "[fd00::1]:4001".parse().unwrap()];
        Card { domain: domain(time_namespace), addresses }
    }

    fn folder(run: &Path, time_namespace: u64) -> Folder {
        let run = Arc::new(rpd_files::HeldFolder::open(run).unwrap());
        Folder::make(&run, false, DomainId::of(&domain(time_namespace))).unwrap()
    }

    #[test]
    fn all_collectors_of_a_run_agree_on_one_secret() {
        let run = tempfile::tempdir().unwrap();
        for _ in 0..20 {
            let barrier = Arc::new(Barrier::new(8));
            let threads = (0..8).map(|i| {
                let (barrier, folder) = (Arc::clone(&barrier), folder(run.path(), i));
                std::thread::spawn(move || {
                    barrier.wait();
                    folder.secret().unwrap().seal(&packet(Kind::Ask))
                })
            });
            let threads: Vec<_> = threads.collect();
            let sealed: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            assert!(sealed.windows(2).all(|pair| pair[0] == pair[1]));
            let path = run.path().join("clocks/secret");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
            assert_eq!(fs::read_dir(run.path().join("clocks")).unwrap().count(), 1, "no draft is left");
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_secret_that_is_none_is_an_error() {
        let run = tempfile::tempdir().unwrap();
        let folder = folder(run.path(), 1);
        let path = run.path().join("clocks/secret");
        fs::write(&path, [7; 31]).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(folder.secret().is_err(), "too short");
        fs::write(&path, [7; 32]).unwrap();
        assert!(folder.secret().is_ok());
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(folder.secret().is_err(), "the group may read it");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(folder.secret().is_err(), "a link");
    }

    #[test]
    fn a_domain_has_one_holder_and_cards_come_in_order() {
        let run = tempfile::tempdir().unwrap();
        let (first, second) = (folder(run.path(), 1), folder(run.path(), 2));
        let claimed = Claimed { holder: 5, network: 6, rank: 9, beat: -1 };
        assert_eq!(first.claimed().unwrap(), None);
        assert!(first.claim(&claimed).unwrap() && !first.claim(&Claimed { holder: 6, ..claimed }).unwrap());
        assert_eq!((first.claimed().unwrap(), second.claimed().unwrap()), (Some(claimed), None));
        first.claim_again(&Claimed { holder: 7, ..claimed }).unwrap();
        assert_eq!(first.claimed().unwrap().unwrap().holder, 7);

        first.publish(9, &card(1)).unwrap();
        second.publish(4, &card(2)).unwrap();
        second.publish(12, &card(2)).unwrap();
        let listed = first.list().unwrap();
        assert_eq!(listed.iter().map(|agent| agent.rank).collect::<Vec<_>>(), [4, 9]);
        assert_eq!(second.card(listed[1]), Some(card(1)));
        first.secret().unwrap();
        first.leave(9, 5, EXPIRY);
        assert_eq!(first.list().unwrap().len(), 2, "somebody else's");
        first.leave(9, 7, EXPIRY);
        assert_eq!((first.list().unwrap().len(), first.claimed().unwrap()), (1, None));
        second.leave(12, 1, EXPIRY);
        second.leave(4, 1, EXPIRY);
        assert!(!run.path().join("clocks").exists(), "the last one removes it");
    }

    #[test]
    fn files_of_agents_that_were_killed_go_with_the_last_one_and_those_of_others_stay() {
        let run = tempfile::tempdir().unwrap();
        let agents: Vec<Folder> = (1..=4).map(|number| folder(run.path(), number)).collect();
        let claimed = Claimed { holder: 5, network: 6, rank: 9, beat: -1 };
        for (agent, number) in agents.iter().zip(1..) {
            assert!(agent.claim(&claimed).unwrap());
            agent.publish(number, &card(number.into())).unwrap();
        }
        agents[0].secret().unwrap();
        let path = |name: &str| run.path().join("clocks").join(name);
        let age = |path: &Path, seconds| {
            let file = File::options().write(true).open(path).unwrap();
            let then = std::time::SystemTime::now() - Duration::from_secs(seconds);
            file.set_modified(then).unwrap();
        };
        fs::write(path(".secret.0123"), "half a draft").unwrap();
        // The second was killed. The third lives: cards are old.
        for old in [path(".secret.0123"), path(&agents[1].claim_name())] {
            age(&old, 100);
        }
        age(&path(&agents[2].claim_name()), 80);
        (1..=3).for_each(|n| {
            age(&path(&card_name(Listed { rank: n, domain: agents[n as usize - 1].own })), 3_600)
        });
        agents[0].leave(1, 5, EXPIRY);
        let left = agents[2].list().unwrap();
        assert_eq!(left.iter().map(|agent| agent.rank).collect::<Vec<_>>(), [3, 4]);
        assert!(!path(&agents[1].claim_name()).exists() && !path(".secret.0123").exists());
        agents[2].leave(3, 5, EXPIRY);
        assert!(path("secret").exists());
        agents[3].leave(4, 5, EXPIRY);
        assert!(!run.path().join("clocks").exists());
    }

    #[test]
    fn texts_that_make_no_sense_are_nobody() {
        let text = card_text(&card(1));
        assert_eq!(parse_card(&text), Some(card(1)));
        for end in 0..text.len() - 1 {
            assert_eq!(parse_card(&text[..end]), None, "{end}");
        }
        for bad in ["0.0.0.0:7", "224.0.0.1:7", "10.0.0.1:0", "255.255.255.255:9", "[fe80::1]:7", "x"] {
            assert_eq!(parse_card(&text.replace("10.0.0.1:4000", bad)), None, "{bad}");
        }
        assert_eq!(parse_card(&text.replace("end", &"address 10.0.0.1:1\n".repeat(9))), None);
        let claimed = Claimed { holder: 5, network: 6, rank: 9, beat: -1 };
        let text = claim_text(&claimed);
        assert_eq!(parse_claim(&text), Some(claimed));
        for bad in ["", "rpd", &text.replace("rank 9", "rank -9"), &text.replace("agent 1", "agent 2")] {
            assert_eq!(parse_claim(bad), None, "{bad}");
        }
        for name in ["secret", "1-2.card", "0000000001-.card", &format!("+000000001-{:032x}.card", 1)] {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }
}
