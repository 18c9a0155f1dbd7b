//! What a site has in `slurm.conf`, and a job that is requeued.

use super::{Site, USER, assert_status, ticks, ticks_of, until, words};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

/// A file or folder of the user, as old as all the scratch of a run that is long gone.
fn aged(path: &Path) {
    let outcome = rpd_tests::harness::Job::new("touch").args(["-h", "-d", "3 days ago"]).arg(path).run();
    assert_eq!(outcome.code(), Some(0), "{outcome}");
}

/// Scratch as rpd-collect leaves it when it is killed.
fn scratch(site: &Site, name: &str, owner: Option<u32>) {
    let folder = site.scratch().join(name);
    fs::create_dir(&folder).unwrap();
    for file in ["owner", "part.json"] {
        fs::write(folder.join(file), "x").unwrap();
        chown(folder.join(file), owner, owner).unwrap();
        aged(&folder.join(file));
    }
    chown(&folder, owner, owner).unwrap();
    aged(&folder);
}

#[test]
fn a_site_merges_for_who_asks_and_clears_its_nodes_under_slurm() {
    let Some(site) = Site::new("a site") else { return };
    scratch(&site, "rpd-scratch-old", Some(USER));
    scratch(&site, "rpd-scratch-used", Some(USER));
    scratch(&site, "rpd-scratch-of-root", None);
    scratch(&site, "somebody-elses", Some(USER));
    let used = File::open(site.scratch().join("rpd-scratch-used/owner")).unwrap();
    flock(&used, FlockOperation::LockExclusive).unwrap();
    fs::create_dir(site.scratch().join("rpd-scratch-young")).unwrap();
    chown(site.scratch().join("rpd-scratch-young"), Some(USER), Some(USER)).unwrap();
    // The folder that a link leads to is not ours.
    let beyond = site.work().join("rpd-scratch-beyond");
    fs::create_dir(&beyond).unwrap();
    aged(&beyond);
    symlink(&beyond, site.scratch().join("rpd-scratch-link")).unwrap();

    let script = |name: &str, options: &str, more: &str| {
        let program = ticks("--ticks 20 --pause-ms 1").join(" ");
        let text = format!(
            "#SBATCH -n 2 --output={name}.out\nexport RPD_MAX_SIZE=much\nsrun --mpi=none rpd-collect {options} -- {program}\n{more}"
        );
        site.script(name, &text)
    };
    let asks = site.submit(&[&script("asks", "--ask-merge", "")]);
    let comment = format!("--comment=rpd-output={}", site.work().join("elsewhere").display());
    let elsewhere_asks = site.submit(&[&comment, &script("elsewhere", "--ask-merge -o elsewhere", "exit 3")]);
    let says_nothing = site.submit(&[&script("nothing", "", "")]);

    // The merge is another job; that one of the user has to end well.
    site.completed(asks);
    let merged =
        |run: &Path| until("the site has merged", || run.join("merge.status").exists().then_some(()));
    merged(&site.run(asks));
    until("the merge has ended", || (!site.run(asks).join("merge.wanted").exists()).then_some(()));
    assert_eq!([0, 1].map(|rank| ticks_of(&site.run(asks).join("trace.db"), rank)), [20, 20]);
    // That variable was told of where the user looks.
    assert!(site.printed().contains("rpd-collect: rank 0 has warnings in"), "{}", site.printed());

    let ended = site.ended(elsewhere_asks);
    assert_eq!((ended.state.as_str(), ended.code.as_str()), ("FAILED", "3:0"));
    let run = site.work().join(format!("elsewhere/{elsewhere_asks}.0"));
    merged(&run);
    until("the merge has ended", || (!run.join("merge.wanted").exists()).then_some(()));
    assert_status(&run, "done", "all that was recorded");

    site.completed(says_nothing);
    // Slurm starts the epilog of the controller after the job.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(!site.run(says_nothing).join("merge.status").exists());
    let merges = site.user(&["squeue", "--noheader", "--states=all", "--name=rpd-merge", "--format=%i"]);
    assert_eq!(merges.run().success().stdout.lines().count(), 2, "one for each job that asks");

    let mut left: Vec<String> = fs::read_dir(site.scratch())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    let kept = ["link", "of-root", "used", "young"].map(|name| format!("rpd-scratch-{name}"));
    assert_eq!(left[..4], kept);
    assert_eq!(left[4..], ["somebody-elses"]);
    assert!(beyond.exists());
}

#[test]
fn tasks_get_the_scratch_of_their_job_and_a_job_that_is_requeued_a_folder_of_its_own_under_slurm() {
    let Some(site) = Site::new("a job that is requeued") else { return };
    let tells = site.script(
        "tells",
        "#SBATCH -n 1 --output=tells.out\nsrun --mpi=none sh -c 'echo scratch $RPD_SCRATCH.'\n",
    );
    let scratch = site.scratch().display().to_string();
    let tells_own = site.submit_with(&[("SLURM_TMPDIR", &scratch), ("RPD_SCRATCH", "/own")], &[&tells]);
    site.completed(tells_own);
    assert!(site.printed().contains("scratch /own."), "{}", site.printed());
    let tells = site.submit_with(&[("SLURM_TMPDIR", &scratch)], &[&tells]);
    site.completed(tells);
    assert!(site.printed().contains(&format!("scratch {scratch}.")), "{}", site.printed());

    let program = [ticks("--ticks 100000 --counts again"), ticks("--ticks 30 --counts once-more")];
    let text = format!(
        "#SBATCH -n 1 --requeue --output=again.out\n\
         if [ -z \"${{SLURM_RESTART_COUNT:-}}\" ]; then srun --mpi=none rpd-collect -- {}; fi\n\
         srun --mpi=none rpd-collect -- {}\n",
        program[0].join(" "),
        program[1].join(" ")
    );
    let job = site.submit(&words(&[&site.script("again", &text)], &[]));
    site.has_counted("again", 1, 100);
    let _ = site.user(&["scontrol", "requeue", &job.to_string()]).run().success();
    let is_again = |states: &[&str]| {
        let facts = site.facts(job);
        (facts["Restarts"] == "1" && states.contains(&facts["JobState"].as_str())).then_some(())
    };
    until("the job was requeued", || is_again(&["PENDING"]));
    // Slurm would wait for two minutes; slurmd starts it in no second in which it was ended.
    let start = ["scontrol", "update", &format!("JobId={job}"), "StartTime=now+3"];
    let _ = site.user(&start).run().success();
    until("the job runs again", || is_again(&["RUNNING", "COMPLETED"]));
    site.completed(job);
    let [first, second] = [site.run(job), site.work().join(format!("rpd-out/{job}.0-r1"))];
    for run in [&first, &second] {
        let _ = site.user(&["rpd-merge", "-q"]).arg(run).run().success();
    }
    assert_eq!(ticks_of(&second.join("trace.db"), 0), 30);
    let [found, counted] = [ticks_of(&first.join("trace.db"), 0), site.counted("again", 0)];
    assert!((counted..=counted + 1).contains(&found), "{counted} of {found}");
}
