use super::*;
use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

/// User id without an account.
const OTHER: u32 = 60_001;

/// Two folders: the folder of a run, and one with files that must not be reached.
struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        ["run", "private"].iter().for_each(|name| fs::create_dir(folder.path().join(name)).unwrap());
        fs::write(folder.path().join("private/secret"), "secret").unwrap();
        Stage { folder }
    }

    fn run(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    fn private(&self) -> PathBuf {
        self.folder.path().join("private")
    }

    /// Creates a link in the run folder that belongs to another user. Returns `None` if the tests do not run as root.
    fn planted(&self, name: &str, target: &Path) -> Option<PathBuf> {
        let link = self.run().join(name);
        symlink(target, &link).unwrap();
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED links of other users: the tests do not run as root");
            return None;
        }
        lchown(&link, Some(OTHER), Some(OTHER)).unwrap();
        Some(link)
    }
}

fn refusal<T: std::fmt::Debug>(result: std::io::Result<T>) -> FileRefused {
    FileRefused::in_error(&result.unwrap_err()).unwrap().clone()
}

fn text(path: &Path) -> String {
    let mut text = String::new();
    open_input(path).unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn links_of_other_users_are_not_followed_below_a_held_folder() {
    let stage = Stage::new();
    symlink(stage.private().join("secret"), stage.run().join("own")).unwrap();
    symlink(stage.private(), stage.run().join("own-folder")).unwrap();
    anchor(&stage.run(), AnchorUse::Inputs).unwrap();
    assert_eq!(text(&stage.run().join("own")), "secret");
    assert_eq!(text(&stage.run().join("own-folder/secret")), "secret");
    let Some(planted) = stage.planted("file", &stage.private().join("secret")) else { return };
    assert_eq!(refusal(open_input(&planted)), FileRefused::Link { owner: OTHER });
    let folder = stage.planted("folder", &stage.private()).unwrap();
    assert_eq!(refusal(open_input(&folder.join("secret"))), FileRefused::Link { owner: OTHER });
    assert!(refusal(open_input_folder(&folder)).to_string().contains("user 60001"));
    assert!(entry_stat(&planted).is_err());
}

#[test]
fn a_link_that_is_named_counts_if_the_user_made_it() {
    let stage = Stage::new();
    symlink(stage.private().join("secret"), stage.run().join("own")).unwrap();
    assert_eq!(text(&stage.run().join("own")), "secret");
    let Some(planted) = stage.planted("file", &stage.private().join("secret")) else { return };
    assert_eq!(refusal(open_input(&planted)), FileRefused::Link { owner: OTHER });
    let folder = stage.planted("folder", &stage.private()).unwrap();
    assert_eq!(refusal(HeldFolder::open_to_read(&folder)), FileRefused::Link { owner: OTHER });
    // Root does not follow links of other users.
    assert_eq!(refusal(HeldFolder::open(&folder)), FileRefused::Link { owner: OTHER });
}

#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    let stage = Stage::new();
    let fifo = stage.run().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
    assert_eq!(refusal(open_input(&fifo)), FileRefused::NotRegular);
    assert_eq!(refusal(open_input(&stage.run())), FileRefused::NotRegular);
    let folder = HeldFolder::open(&stage.run()).unwrap();
    assert_eq!(refusal(folder.open_file("fifo")), FileRefused::NotRegular);
    assert_eq!(refusal(folder.open_own("fifo", FileAccess::Write)), FileRefused::NotRegular);
    assert_eq!(refusal(open_output(&fifo, FileAccess::Write)), FileRefused::NotRegular);
    fs::create_dir(stage.run().join("folder")).unwrap();
    assert_eq!(refusal(folder.append("folder", 0o600)), FileRefused::NotRegular);
    assert_eq!(refusal(open_output(&stage.run().join("folder"), FileAccess::Write)), FileRefused::NotRegular);
}

#[test]
fn a_file_is_removed_if_it_is_still_the_same() {
    let stage = Stage::new();
    let folder = HeldFolder::open(&stage.run()).unwrap();
    folder.create("mine", 0o600).unwrap();
    let mine = folder.stat("mine").unwrap().identity;
    folder.rename("mine", "aside").unwrap();
    fs::write(stage.run().join("mine"), "another").unwrap();
    assert!(!folder.remove_if("mine", mine).unwrap() && stage.run().join("mine").exists());
    assert!(folder.remove_if("aside", mine).unwrap() && !stage.run().join("aside").exists());
    assert_eq!(folder.remove_if("aside", mine).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn paths_that_are_not_utf_8_are_opened_where_others_may_rename_folders() {
    let stage = Stage::new();
    let shared = stage.run().join(OsStr::from_bytes(b"a \xff folder"));
    let path = shared.join(OsStr::from_bytes(b"trace\xfe.db"));
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    create_output(&path, 0o600).unwrap().write_all(b"mine").unwrap();
    assert_eq!(text(&path), "mine");
    for used_for in [AnchorUse::Inputs, AnchorUse::Outputs] {
        let opened = open_by_path(&path, used_for, |path| fs::read(path).and(fs::File::open(path)));
        assert!(opened.unwrap().is_ok());
        let exchanged = open_by_path(&path, used_for, |_| fs::File::open(stage.private().join("secret")));
        assert_eq!(refusal(exchanged), FileRefused::Exchanged);
    }
    let renamed = shared.join(OsStr::from_bytes(b"\xfd"));
    rename_output(&path, &renamed).unwrap();
    remove_output(&renamed).unwrap();
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 0);
}

#[test]
fn a_held_folder_stays_the_same_when_its_path_leads_elsewhere() {
    let stage = Stage::new();
    fs::write(stage.run().join("secret"), "mine").unwrap();
    anchor(&stage.run(), AnchorUse::Inputs).unwrap();
    fs::rename(stage.run(), stage.folder.path().join("aside")).unwrap();
    symlink(stage.private(), stage.run()).unwrap();
    assert_eq!(text(&stage.run().join("secret")), "mine");
}

#[test]
fn outputs_are_created_in_the_folder_that_was_opened_first() {
    let stage = Stage::new();
    let output = stage.run().join("trace.db.partial");
    create_output(&output, 0o600).unwrap().write_all(b"1").unwrap();
    fs::rename(stage.run(), stage.folder.path().join("aside")).unwrap();
    symlink(stage.private(), stage.run()).unwrap();
    open_output(&output, FileAccess::Write).unwrap();
    rename_output(&output, &stage.run().join("trace.db")).unwrap();
    create_output_folder(&stage.run().join("work"), 0o700).unwrap();
    create_output(&stage.run().join("work/a"), 0o600).unwrap();
    remove_output_folder(&stage.run().join("work")).unwrap();
    let names = |folder: &Path| fs::read_dir(folder).unwrap().count();
    assert_eq!((names(&stage.private()), names(&stage.folder.path().join("aside"))), (1, 1));
}

#[test]
fn an_output_is_never_written_through_a_link_or_a_second_name() {
    let stage = Stage::new();
    let output = stage.run().join("out");
    symlink(stage.private().join("new"), &output).unwrap();
    assert_eq!(create_output(&output, 0o600).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(open_or_create_output(&output, 0o600).unwrap_err().kind(), ErrorKind::NotFound);
    let folder = HeldFolder::open(&stage.run()).unwrap();
    assert_eq!(refusal(folder.append("out", 0o600)), FileRefused::AnyLink);
    assert!(!stage.private().join("new").exists());
    fs::remove_file(&output).unwrap();
    fs::hard_link(stage.private().join("secret"), &output).unwrap();
    assert!(matches!(refusal(open_output(&output, FileAccess::Write)), FileRefused::HardLink { .. }));
    assert!(matches!(refusal(folder.append("out", 0o600)), FileRefused::HardLink { .. }));
    assert!(refusal(set_output_mode(&output, 0o644)).to_string().contains("hard link"));
    if rustix::process::geteuid().is_root() {
        let foreign = stage.run().join("foreign");
        fs::write(&foreign, "").unwrap();
        lchown(&foreign, Some(OTHER), None).unwrap();
        assert_eq!(
            refusal(open_output(&foreign, FileAccess::Write)),
            FileRefused::OtherOwner { owner: OTHER }
        );
    }
}

#[test]
fn a_second_name_of_a_private_file_in_a_foreign_folder_is_not_read() {
    let stage = Stage::new();
    fs::hard_link(stage.private().join("secret"), stage.run().join("shard")).unwrap();
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED folders of other users: the tests do not run as root");
    }
    lchown(stage.run(), Some(OTHER), Some(OTHER)).unwrap();
    anchor(&stage.run(), AnchorUse::Inputs).unwrap();
    assert_eq!(refusal(open_input(&stage.run().join("shard"))), FileRefused::HardLink { owner: 0 });
}

#[test]
fn a_library_has_to_open_the_file_that_was_checked() {
    let stage = Stage::new();
    let path = stage.run().join("trace.db");
    fs::write(&path, "mine").unwrap();
    // Any user may replace its entries.
    fs::set_permissions(stage.run(), fs::Permissions::from_mode(0o777)).unwrap();
    let open = |path: &Path| fs::File::open(path);
    assert!(open_by_path(&path, AnchorUse::Inputs, open).unwrap().is_ok());
    let exchanged = open_by_path(&path, AnchorUse::Inputs, |_| open(&stage.private().join("secret")));
    assert_eq!(refusal(exchanged), FileRefused::Exchanged);
    let failed = open_by_path(&path, AnchorUse::Inputs, |_| open(Path::new("/nowhere")));
    assert_eq!(failed.unwrap().unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn names_with_a_way_in_them_are_no_entries() {
    let folder = HeldFolder::open(Stage::new().folder.path()).unwrap();
    for name in ["", ".", "..", "a/b", "../private/secret"] {
        assert_eq!(refusal(folder.open_file(name)), FileRefused::NotAName, "{name}");
        assert_eq!(refusal(folder.create(name, 0o600)), FileRefused::NotAName, "{name}");
    }
}

#[test]
fn a_folder_that_may_not_be_listed_can_be_written_to() {
    let stage = Stage::new();
    fs::set_permissions(stage.run(), fs::Permissions::from_mode(0o300)).unwrap();
    create_output(&stage.run().join("a"), 0o600).unwrap();
    assert!(open_input(&stage.run().join("a")).is_ok());
    fs::set_permissions(stage.run(), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn an_output_folder_that_is_renamed_stays_the_same() {
    let stage = Stage::new();
    create_output(&stage.run().join("a.partial"), 0o600).unwrap();
    fs::rename(stage.run(), stage.folder.path().join("aside")).unwrap();
    rename_output_to_new(&stage.run().join("a.partial"), &stage.run().join("a")).unwrap();
    assert!(stage.folder.path().join("aside/a").exists());
    assert_eq!(create_output_folder(Path::new("."), 0o700).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(create_output_folder(Path::new(".."), 0o700).unwrap_err().kind(), ErrorKind::AlreadyExists);
}

#[test]
fn folders_that_others_may_exchange_are_not_safe() {
    let stage = Stage::new();
    assert!(is_safe_folder(&stage.run()));
    fs::set_permissions(stage.run(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(!is_safe_folder(&stage.run()));
    fs::set_permissions(stage.run(), fs::Permissions::from_mode(0o1777)).unwrap();
    assert!(is_safe_folder(&stage.run()));
}
