//! Folders and files that their owner exchanges while another user reads or writes there.

use super::two_users::{EVE, TwoUsers, as_user, small_run};
use rpd_tests::harness::{Database, Job, skip};
use rpd_tests::synthetic::write_shards;
use rustix::fs::{CWD, RenameFlags};
use std::fs;
use std::os::unix::fs::{lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// How often each attack is tried.
const ROUNDS: usize = 12;
/// Openings at which something is exchanged, one in each merge.
const OPENINGS: usize = 6;

/// Exchanges a folder for a link, for ever.
const FOLDER: &str = "
import os, sys
run, target = sys.argv[1:]
while True:
    os.rename(run, run + '.aside')
    os.symlink(target, run)
    os.unlink(run)
    os.rename(run + '.aside', run)
";
/// A program of Eve that is stopped with this value.
struct Attack(Child);

impl Attack {
    fn start(script: &str, arguments: &[&Path]) -> Attack {
        let job = Job::new("/usr/bin/python3").args(["-c", script]).args(arguments);
        Attack(as_user(job, EVE).start())
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A library that exchanges two paths at the n-th opening of a file with this end of its name. The program does to itself
/// what another user can do at that moment.
struct Exchange(PathBuf);

const EXCHANGE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static int opened;
static void look(const char *path, long flags) {
    const char *ending = getenv("EXCHANGE_ENDING"), *at = getenv("EXCHANGE_AT");
    if (!ending || !at || (flags & (O_PATH | O_CREAT)) || strlen(path) < strlen(ending)) return;
    if (strcmp(path + strlen(path) - strlen(ending), ending)) return;
    if (__atomic_add_fetch(&opened, 1, __ATOMIC_SEQ_CST) != atoi(at)) return;
    renameat2(AT_FDCWD, getenv("EXCHANGE_ONE"), AT_FDCWD, getenv("EXCHANGE_OTHER"), RENAME_EXCHANGE);
}
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list list; va_start(list, flags); mode_t mode = va_arg(list, mode_t); va_end(list); \
        look(path, flags); \
        return ((int (*)(const char *, int, mode_t))dlsym(RTLD_NEXT, #name))(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        va_list list; va_start(list, flags); mode_t mode = va_arg(list, mode_t); va_end(list); \
        look(path, flags); \
        return ((int (*)(int, const char *, int, mode_t))dlsym(RTLD_NEXT, #name))(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)
/* openat2 has no function of its own. */
long syscall(long number, ...) {
    va_list list; va_start(list, number);
    long a[6];
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_openat2) look((const char *)a[1], *(unsigned long long *)a[2]);
    return ((long (*)(long, ...))dlsym(RTLD_NEXT, "syscall"))(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
"#;

impl Exchange {
    /// `None` where no C compiler is.
    fn new(users: &TwoUsers) -> Option<Exchange> {
        let (source, library) = (users.path("exchange.c"), users.path("exchange.so"));
        fs::write(&source, EXCHANGE).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl");
        if !cc.status().is_ok_and(|status| status.success()) {
            skip("exchanges at each opening", "no C compiler is here");
            return None;
        }
        Some(Exchange(library))
    }

    fn at(&self, job: Job, opening: usize, ending: &str, [one, other]: [&Path; 2]) -> Job {
        let job = job.env("LD_PRELOAD", &self.0).env("EXCHANGE_AT", opening.to_string());
        job.env("EXCHANGE_ENDING", ending).env("EXCHANGE_ONE", one).env("EXCHANGE_OTHER", other)
    }
}

/// A link of Eve beside her run.
fn plant_link(users: &TwoUsers, target: &Path) -> PathBuf {
    let link = users.path("eve/planted");
    symlink(target, &link).unwrap();
    lchown(&link, Some(EVE), Some(EVE)).unwrap();
    link
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

fn swap(one: &Path, other: &Path) {
    rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

#[test]
fn a_run_that_is_exchanged_for_a_link_is_read_or_refused() {
    let Some(users) = TwoUsers::new("exchanged folders") else { return };
    let Some(exchange) = Exchange::new(&users) else { return };
    let run = users.run_of_eve();
    let link = plant_link(&users, &users.private_run());
    let events = |attacked: bool, opening: usize| {
        let output = users.path("merged.db");
        let merge = users.program("rpd-merge").args(["--force", "-o"]).arg(&output).arg(&run);
        let outcome = match attacked {
            true => exchange.at(merge, opening, ".rpdshard", [&run, &link]).run(),
            false => merge.run(),
        };
        (Database::open(&output).count("rocpd_event"), outcome.success())
    };
    let (alone, _) = events(false, 0);
    let before = users.snapshot();
    for opening in 1..=OPENINGS {
        let (attacked, outcome) = events(true, opening);
        assert!(is_link(&run), "the folder is exchanged at opening {opening}: {outcome}");
        assert_eq!(attacked, alone, "opening {opening}: {outcome}");
        swap(&run, &link);
    }
    assert_eq!(users.snapshot(), before);
}

#[test]
fn an_output_folder_that_is_exchanged_for_a_link_leads_nowhere_else() {
    let Some(users) = TwoUsers::new("exchanged output folders") else { return };
    let run = write_shards(&small_run().plan(), &users.path("bin")).unwrap();
    let folder = users.run_of_eve();
    let before = users.snapshot();
    let attack = Attack::start(FOLDER, &[&folder, &users.private()]);
    for options in [&["-o"][..], &["--format", "rpd", "-o"]].iter().cycle().take(ROUNDS) {
        let outcome = users
            .program("rpd-merge")
            .arg("--force")
            .args(*options)
            .arg(folder.join("x.out"))
            .arg(&run)
            .run();
        assert!(outcome.code().is_some_and(|code| code <= 5), "{outcome}");
        assert_eq!(users.snapshot(), before, "{outcome}");
    }
    drop(attack);
}

#[test]
fn a_partial_file_that_is_exchanged_for_a_link_is_not_written() {
    let Some(users) = TwoUsers::new("exchanged partial files") else { return };
    let Some(exchange) = Exchange::new(&users) else { return };
    let run = write_shards(&small_run().plan(), &users.path("bin")).unwrap();
    let folder = users.run_of_eve();
    let partial = folder.join("x.db.partial");
    let before = users.snapshot();
    let mut exchanged = 0;
    for options in [&["--force"][..], &["--force", "--verify"]] {
        for opening in 1..=OPENINGS {
            let link = plant_link(&users, &users.secret());
            let merge = users.program("rpd-merge").args(options);
            let merge = merge.arg("-o").arg(folder.join("x.db")).arg(&run);
            let outcome = exchange.at(merge, opening, ".partial", [&partial, &link]).run();
            assert!(outcome.code().is_some_and(|code| code <= 5), "{outcome}");
            assert_eq!(users.snapshot(), before, "{options:?}, opening {opening}: {outcome}");
            exchanged += usize::from(!is_link(&link));
            for left in [&link, &partial, &folder.join("x.db")] {
                let _ = fs::remove_file(left);
            }
        }
    }
    assert!(exchanged >= 4, "{exchanged} exchanges");
}
