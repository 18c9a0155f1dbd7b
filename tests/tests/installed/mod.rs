//! `ci/install`: what it installs works where it is put, and an installation that is there is whole at any time.

mod manuals;
mod modules;
mod spack;

use rpd_tests::harness::{Database, Job, JobOutcome, binary, python, repository, rpd_merge};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A program with one range.
const PROGRAM: &str = "
import ctypes
roctx = ctypes.CDLL(None)
if hasattr(roctx, 'roctxRangePushA'):
    roctx.roctxRangePushA(b'a step')
    roctx.roctxRangePop()
";

/// Where the programs were built.
fn built() -> PathBuf {
    for name in ["rpd-merge", "rpd-report", "rpd-collect", "rpd-manuals"] {
        binary(name);
    }
    binary("rpd-collect").parent().unwrap().to_owned()
}

/// `ci/install --built` of what was built, to which arguments are to be added.
fn install() -> Job {
    Job::new(repository().join("ci/install")).arg("--built").arg(built())
}

/// An installation below a prefix with a space in its name.
struct Installed {
    folder: TempDir,
}

impl Installed {
    fn new() -> Installed {
        let installed = Installed { folder: tempfile::tempdir().unwrap() };
        let _ = install().arg(installed.prefix()).run().success();
        installed
    }

    fn prefix(&self) -> PathBuf {
        self.folder.path().join("a prefix")
    }

    fn bin(&self, name: &str) -> PathBuf {
        self.prefix().join("bin").join(name)
    }
}

/// Everything below a folder: contents of the files by their paths.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(tree(&path)),
            false => _ = found.insert(path.clone(), fs::read(&path).unwrap()),
        }
    }
    found
}

/// A run of [`PROGRAM`] below this rpd-collect.
fn recorded(collect: &Path, folder: &Path, library: Option<&Path>) -> JobOutcome {
    let job = Job::new(collect).arg("-o").arg(folder).args(["--run-id", "run", "--"]).arg(python());
    // Where a link to a library with a space in its path is made.
    let job = job.args(["-c", PROGRAM]).env("TMPDIR", folder.parent().unwrap());
    let job = job.limit(Duration::from_secs(60));
    match library {
        Some(library) => job.env("RPD_INTERCEPT", library).run(),
        None => job.without_env("RPD_INTERCEPT").run(),
    }
}

/// How many ranges a merge finds in the run of a folder.
fn ranges(merge: Job, folder: &Path) -> i64 {
    let _ = merge.arg("--quiet").arg(folder.join("run")).run().success();
    let database = Database::open(&folder.join("run/trace.db"));
    database.number("SELECT count(*) FROM regions WHERE name = 'a step'")
}

#[test]
fn installed_programs_record_and_merge_below_a_prefix_with_a_space() {
    let installed = Installed::new();
    let out = installed.folder.path().join("out");
    let outcome = recorded(&installed.bin("rpd-collect"), &out, None).success();
    assert_eq!(outcome.stderr, "", "{outcome}");
    assert_eq!(ranges(Job::new(installed.bin("rpd-merge")), &out), 1);

    // Beside the program, and where RPD_INTERCEPT says; without a library the program runs all the same.
    let library = installed.prefix().join("lib/librpd_intercept.so");
    let elsewhere = installed.folder.path().join("else where");
    fs::create_dir(&elsewhere).unwrap();
    let alone = elsewhere.join("rpd-collect");
    fs::copy(installed.bin("rpd-collect"), &alone).unwrap();
    let without = recorded(&alone, &out.join("without"), None).success();
    assert!(without.stderr.contains("librpd_intercept.so"), "{without}");
    let _ = recorded(&alone, &out.join("named"), Some(&library)).success();
    assert_eq!(ranges(rpd_merge(), &out.join("named")), 1);
    fs::copy(&library, elsewhere.join("librpd_intercept.so")).unwrap();
    let _ = recorded(&alone, &out.join("beside"), None).success();
    assert_eq!(ranges(rpd_merge(), &out.join("beside")), 1);
}

#[test]
fn an_installation_that_is_in_use_is_replaced() {
    let installed = Installed::new();
    let before = fs::metadata(installed.bin("rpd-collect")).unwrap().ino();
    let out = installed.folder.path().join("out");
    let job = Job::new(installed.bin("rpd-collect")).env("TMPDIR", installed.folder.path());
    let job = job.arg("-o").arg(&out).args(["--run-id", "run", "--"]);
    let mut running = job.args(["sh", "-c", "read line < \"$0\"; exit 7"]).arg(fifo(&installed)).start();
    while !out.join("run").is_dir() {
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(running.try_wait().unwrap(), None);
    }
    let _ = install().arg(installed.prefix()).run().success();
    assert_ne!(fs::metadata(installed.bin("rpd-collect")).unwrap().ino(), before, "it was written to");
    fs::write(fifo(&installed), "\n").unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(7));
    assert!(tree(&installed.prefix()).keys().all(|path| path.extension().is_none_or(|end| end != "new")));
    let modes = [("bin/rpd-merge", 0o755), ("share/rpd/LICENSE", 0o644), ("share/rpd", 0o755)];
    for (path, mode) in modes {
        let found = fs::metadata(installed.prefix().join(path)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{path}");
    }
}

/// A FIFO beside an installation.
fn fifo(installed: &Installed) -> PathBuf {
    let path = installed.folder.path().join("fifo");
    if !path.exists() {
        let _ = Job::new("mkfifo").arg(&path).run().success();
    }
    path
}

#[test]
fn one_that_fails_changes_nothing() {
    // What was not built.
    let folder = tempfile::tempdir().unwrap();
    let (some, prefix) = (folder.path().join("built"), folder.path().join("prefix"));
    fs::create_dir(&some).unwrap();
    fs::copy(binary("rpd-merge"), some.join("rpd-merge")).unwrap();
    let job = || Job::new(repository().join("ci/install"));
    let outcome = job().arg("--built").arg(&some).arg(&prefix).run();
    assert!(outcome.code() != Some(0) && outcome.stderr.contains("rpd-collect"), "{outcome}");
    assert!(!prefix.exists());

    // What finds no place, in the middle of it: an older installation stays as it was.
    for (path, text) in [("bin/rpd-merge", "older"), ("share/rpd", "no folder")] {
        let path = prefix.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let before = tree(&prefix);
    let outcome = install().arg(&prefix).run();
    assert!(outcome.code() != Some(0), "{outcome}");
    assert!(tree(&prefix) == before, "{:?}", tree(&prefix).keys());

    for (wrong, word) in [
        (&["--built", "/nowhere", "p"][..], "/nowhere"),
        (&["--tarball", "t.tar.gz", "a/b"], "a/b"),
        (&["p", "q"], "two prefixes"),
        (&["--neither"], "PREFIX"),
        (&[], "PREFIX"),
    ] {
        let outcome = job().folder(folder.path()).args(wrong).run();
        assert!(outcome.code() == Some(2) && outcome.stderr.contains(word), "{wrong:?}: {outcome}");
    }
}

#[test]
fn a_tarball_has_one_folder_that_works_where_it_is_unpacked() {
    let folder = tempfile::tempdir().unwrap();
    // What debuggers want takes long to be packed.
    let small = tempfile::tempdir().unwrap();
    for name in ["rpd-collect", "rpd-merge", "rpd-report", "rpd-manuals", "librpd_intercept.so"] {
        let strip = Job::new("strip").arg("-o").arg(small.path().join(name)).arg(built().join(name));
        let _ = strip.run().success();
    }
    // Relative to where the caller is.
    let job = Job::new(repository().join("ci/install")).folder(folder.path());
    let job = job.arg("--built").arg(small.path()).args(["--tarball", "rpd.tar.gz", "rpd-0.1.0"]);
    let outcome = job.run().success();
    let place = folder.path().join("some where");
    fs::create_dir(&place).unwrap();
    let unpack = Job::new("tar").arg("-xzf").arg(folder.path().join("rpd.tar.gz")).arg("-C").arg(&place);
    let _ = unpack.run().success();
    let names = |folder: &Path| -> Vec<_> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    assert_eq!(names(&place), ["rpd-0.1.0"]);
    assert_eq!(names(folder.path()).len(), 2, "{:?}", names(folder.path()));
    let root = place.join("rpd-0.1.0");
    let out = folder.path().join("out");
    let _ = recorded(&root.join("bin/rpd-collect"), &out, None).success();
    assert_eq!(ranges(Job::new(root.join("bin/rpd-merge")), &out), 1);

    // The oldest C library that it says it runs with has all that the programs ask for.
    let said = fs::read_to_string(root.join("share/rpd/GLIBC")).unwrap();
    assert!(outcome.stdout.contains(said.trim()), "{outcome}");
    let version = |text: &str| -> Vec<u32> { text.split('.').filter_map(|part| part.parse().ok()).collect() };
    let floor = version(said.strip_prefix("GLIBC ").unwrap().split(' ').next().unwrap());
    let mut asked = Vec::new();
    for (path, bytes) in tree(&root) {
        let is_program = path.starts_with(root.join("bin")) || path.starts_with(root.join("lib"));
        for start in memchr(&bytes, b"GLIBC_").into_iter().filter(|_| is_program) {
            let rest = bytes[start + 6..].iter().take(8);
            let text: Vec<u8> =
                rest.copied().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').collect();
            asked.push(version(&String::from_utf8(text).unwrap()));
        }
    }
    assert!(floor.len() >= 2 && asked.iter().any(|one| one.len() >= 2), "{said}: {asked:?}");
    assert_eq!(asked.iter().max(), Some(&floor), "{said}");
}

/// Where a word begins in bytes.
fn memchr(bytes: &[u8], word: &[u8]) -> Vec<usize> {
    bytes.windows(word.len()).enumerate().filter(|(_, part)| *part == word).map(|(at, _)| at).collect()
}

#[test]
fn without_mpi_nothing_of_it_is_installed() {
    let folder = tempfile::tempdir().unwrap();
    let some = folder.path().join("built");
    fs::create_dir(&some).unwrap();
    for name in ["rpd-collect", "rpd-merge", "rpd-report", "rpd-manuals", "librpd_intercept.so"] {
        std::os::unix::fs::symlink(built().join(name), some.join(name)).unwrap();
    }
    // Relative to where the caller is, both.
    let job = Job::new(repository().join("ci/install")).folder(folder.path());
    let _ = job.args(["--built", "built", "prefix"]).run().success();
    let prefix = folder.path().join("prefix");
    assert!(prefix.join("bin/rpd-merge").is_file() && !prefix.join("bin/rpd-merge-mpi").exists());
    assert!(!fs::symlink_metadata(prefix.join("bin/rpd-merge")).unwrap().is_symlink());
}

/// Whether a file has sections that only debuggers read.
fn has_debug_info(path: &Path) -> bool {
    let sections = Job::new("readelf").args(["--wide", "--sections"]).arg(path).run().success().stdout;
    sections.contains(".debug_info")
}

#[test]
fn installed_programs_have_no_debug_info_but_beside_them_on_request() {
    let folder = tempfile::tempdir().unwrap();
    assert!(has_debug_info(&built().join("rpd-collect")), "otherwise this test would see nothing");
    for (option, is_there) in [(None, false), (Some("--debug-info"), true)] {
        let prefix = folder.path().join(option.unwrap_or("plain"));
        let _ = install().args(option).arg(&prefix).run().success();
        for name in ["bin/rpd-collect", "bin/rpd-merge", "bin/rpd-report", "lib/librpd_intercept.so"] {
            let path = prefix.join(name);
            assert!(!has_debug_info(&path), "{name}");
            let beside = path.parent().unwrap().join(".debug");
            let beside = beside.join(format!("{}.debug", path.file_name().unwrap().to_str().unwrap()));
            assert_eq!(beside.is_file(), is_there, "{name}");
            assert!(!is_there || has_debug_info(&beside), "{name}");
        }
        assert!(
            !prefix.join("share/rpd/configs/Cargo.toml").exists()
                && !prefix.join("share/rpd/Cargo.toml").exists()
        );
        assert!(prefix.join("share/rpd/configs/full.toml").is_file());
    }
}

#[test]
fn notices_of_the_linked_packages_are_installed() {
    let installed = Installed::new();
    let text = fs::read_to_string(installed.prefix().join("share/rpd/THIRD-PARTY")).unwrap();
    let lock = fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    for name in ["clap", "rusqlite", "rustix", "serde", "zstd-sys", "libsqlite3-sys"] {
        let version = lock.split(&format!("name = \"{name}\"\nversion = \"")).nth(1).unwrap();
        let version = version.split('"').next().unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("{name} {version}: ")));
        assert!(line.is_some_and(|line| line.contains("; text")), "{name} {version}: {line:?}");
    }
    assert!(text.contains("Permission is hereby granted") && text.contains("Apache License"));
    for absent in ["proptest ", "tempfile "] {
        assert!(!text.lines().any(|line| line.starts_with(absent)), "{absent}is linked into no program");
    }
    for path in [repository().to_str().unwrap(), "/registry/src", "/.cargo"] {
        assert!(!text.contains(path), "{path}");
    }
}

#[test]
fn a_program_that_was_not_built_is_named_with_the_command_that_builds_it() {
    let folder = tempfile::tempdir().unwrap();
    // As ci/quickstart leaves it.
    for name in ["rpd-collect", "rpd-merge", "rpd-report", "librpd_intercept.so"] {
        std::os::unix::fs::symlink(built().join(name), folder.path().join(name)).unwrap();
    }
    let job = Job::new(repository().join("ci/install")).arg("--built").arg(folder.path());
    let outcome = job.arg(folder.path().join("prefix")).run();
    let line = format!(
        "ci/install: --built: {}/rpd-manuals is missing; build it: cargo build --release -p rpd-manuals\n",
        folder.path().display()
    );
    assert_eq!((outcome.code(), outcome.stderr.as_str()), (Some(2), line.as_str()), "{outcome}");
    assert!(!folder.path().join("prefix").exists());
}

#[test]
fn an_option_without_its_folder_or_file_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let lacks_folder = "--built lacks the folder of the built programs, such as target/release";
    let no_folder = |name: &str| {
        format!(
            "--built: {name} is not a folder that can be entered; name that of the built programs, such as target/release"
        )
    };
    for (arguments, line) in [
        (&["--built"][..], lacks_folder.to_owned()),
        (&["prefix", "--built", ""], lacks_folder.to_owned()),
        (&["--built", "nowhere", "prefix"], no_folder("nowhere")),
        (&["--built", "file", "prefix"], no_folder("file")),
        (&["--built", "--no-mpi", "prefix"], no_folder("--no-mpi")),
        (&["prefix", "--tarball"], "--tarball lacks the name of the file to write".to_owned()),
    ] {
        let job = Job::new(repository().join("ci/install")).folder(folder.path()).env("CDPATH", "/tmp");
        let outcome = job.args(arguments).run();
        let expected = format!("ci/install: {line}\n");
        assert_eq!((outcome.code(), outcome.stderr.as_str()), (Some(2), expected.as_str()), "{arguments:?}");
        assert!(!folder.path().join("prefix").exists());
    }
}
