//! Checks the output folder.

use super::finding::CheckFinding;
use crate::command_line::Size;
use rpd_files::HeldFolder;
use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// With less free space, even a short run does not fit.
const MIN_FREE_BYTES: u64 = 16 << 20;
/// Bytes of a test write. Quotas report errors only on a write.
const TRIAL_BYTES: usize = 64 << 10;
const ELSEWHERE: &str = "choose another folder with -o DIR or RPD_OUTPUT";

/// Names of file systems, by the magic number of `statfs`.
const KINDS: [(u64, &str); 13] = [
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x00c3_6400, "Ceph"),
    (0x0102_1994, "tmpfs"),
    (0x794c_7630, "overlay"),
    (0xef53, "ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683e, "Btrfs"),
    (0x2fc1_2fc1, "ZFS"),
];
const IN_MEMORY: &str = "tmpfs";

/// Checks whether a file can be written there, and how much space there is.
pub(super) fn check(root: &Path, max_bytes: u64) -> Vec<CheckFinding> {
    let tried = try_out(root);
    let mut findings = vec![match &tried {
        Ok(()) => CheckFinding::Ok(format!("{} can be written", root.display())),
        Err(error) => {
            let what = format!("{} cannot be written: {error}", root.display());
            let next = match error.kind() {
                io::ErrorKind::QuotaExceeded => {
                    "your quota is used up; free some space, or choose another place with -o DIR"
                }
                io::ErrorKind::StorageFull => "the file system is full; choose another place with -o DIR",
                _ => ELSEWHERE,
            };
            CheckFinding::problem(what, next)
        }
    }];
    let existing = root.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    findings.extend(free_space(existing, max_bytes));
    findings
}

/// Creates the folder and a file in it, and removes both.
fn try_out(root: &Path) -> io::Result<()> {
    let made: Vec<PathBuf> = root.ancestors().take_while(|path| !path.exists()).map(Path::to_owned).collect();
    let result = make_and_write(root);
    for folder in made {
        // Fails if another process uses the folder by now. Then it stays.
        let _ = std::fs::remove_dir(folder);
    }
    result
}

fn make_and_write(root: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(root)?;
    let folder = HeldFolder::open(root)?;
    let name = format!(".rpd-doctor-{}", std::process::id());
    let mut file = folder.create(&name, 0o600)?;
    let written = file.write_all(&[0; TRIAL_BYTES]).and_then(|()| file.sync_all());
    folder.remove(&name)?;
    written
}

/// Reports free space and inodes, and the kind of the file system.
fn free_space(existing: &Path, max_bytes: u64) -> Vec<CheckFinding> {
    let (Ok(space), Ok(kind)) = (rustix::fs::statvfs(existing), rustix::fs::statfs(existing)) else {
        return vec![CheckFinding::Note(format!("{} does not report its free space", existing.display()))];
    };
    let magic = kind.f_type as u64 & 0xffff_ffff;
    let kind = KINDS.iter().find(|(known, _)| *known == magic);
    let kind = kind.map_or(format!("file system {magic:#x}"), |(_, name)| (*name).to_owned());
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let text = format!("{kind}, {} free", Size(free));
    let mut findings = vec![if free < MIN_FREE_BYTES {
        CheckFinding::problem(text, ELSEWHERE)
    } else if free < max_bytes {
        CheckFinding::Note(format!("{text}: less than the {} that a shard may have", Size(max_bytes)))
    } else {
        CheckFinding::Ok(text)
    }];
    if kind == IN_MEMORY {
        findings.push(CheckFinding::Note(
            "tmpfs is memory of this node alone; choose a shared folder for more nodes".to_owned(),
        ));
    }
    // A file system that reports no inodes does not limit them.
    if space.f_files > 0 && space.f_favail < 2 {
        findings.push(CheckFinding::problem("no inodes are left", ELSEWHERE));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_tried_out_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let is_ok = |findings: Vec<CheckFinding>| matches!(findings.first(), Some(CheckFinding::Ok(_)));
        assert!(is_ok(check(&folder.path().join("a/b/c"), 1)));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        std::fs::create_dir(folder.path().join("mine")).unwrap();
        assert!(is_ok(check(&folder.path().join("mine"), 1)));
        assert_eq!(std::fs::read_dir(folder.path().join("mine")).unwrap().count(), 0);
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(!is_ok(check(&folder.path().join("file/x"), 1)));
        assert!(folder.path().join("file").is_file());
    }
}
