//! The scripts that users submit, and one of their own.

use super::{Site, assert_status, assert_training, status, ticks, ticks_of, train, words};
use rpd_tests::harness::Database;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Distributed data-parallel with gloo: each worker has its phases.
const TORCH: &str = r#"
import ctypes, torch, torch.distributed as dist
program = ctypes.CDLL(None)
program.roctxRangePushA.argtypes = [ctypes.c_char_p]
dist.init_process_group("gloo")
total = torch.ones(8)
for step in range(5):
    program.roctxRangePushA(b"allreduce")
    dist.all_reduce(total)
    program.roctxRangePop()
print("worker", dist.get_rank(), "of", dist.get_world_size(), total[0].item(), flush=True)
dist.destroy_process_group()
"#;

fn traces(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().contains(".pftrace")).count()
}

#[test]
fn sixteen_ranks_are_collected_and_merged_in_one_job_an_array_and_a_job_behind_it_under_slurm() {
    let Some(site) = Site::new("batch jobs") else { return };
    let work = site.work();
    let both = site.script(
        "both.sh",
        &format!(
            "#SBATCH -N 4 -n 16 --output=both.out\nset -e\n\
             srun --mpi=pmix -n 16 rpd-collect -- {}\n\
             srun --mpi=pmix -n 4 rpd-merge --wait 10\n\
             srun --mpi=pmix -n 4 rpd-merge --split-by-time 8 -o slices/\n",
            train(10, &work.join("both")).join(" ")
        ),
    );
    let both = site.submit(&[&both]);
    let template = site.template("collect-and-merge.sbatch");
    let options = ["-N", "2", "--ntasks-per-node=2", "--output=one.out", &template];
    let training = train(8, &work.join("one"));
    let one = site.submit_with(&[("RPD_EPILOG_SPLIT", "3")], &words(&options, &training));
    let template = site.template("array.sbatch");
    let of_task = train(5, &work.join("array-${SLURM_ARRAY_TASK_ID}")).join(" ");
    let options = ["-n", "2", "--array=0-1", "--output=array-%a.out", &template, "bash", "-c"];
    let array = site.submit(&words(&options, &[format!("exec {of_task}")]));
    let template = site.template("collect.sbatch");
    let training = train(7, &work.join("two"));
    let options = ["-N", "4", "--ntasks-per-node=1", "--output=two.out", &template];
    let [two, behind] = site.submit_both(&[], &words(&options, &training));
    // One merge job for all tasks of an array.
    let options = ["-N", "1", "--ntasks-per-node=1", "--array=3-4", "--output=tasks-%a.out", &template];
    let [tasks, behind_tasks] =
        site.submit_both(&[("RPD_SRUN_MPI", "none")], &words(&options, &ticks("--ticks 20")));

    site.completed(both);
    assert_training(&site.run(both).join("trace.db"), &work.join("both"), 16, 10);
    assert_eq!(traces(&work.join("slices")), 8);
    // For the user alone.
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&site.run(both)), 0o700);
    assert_eq!(mode(&site.run(both).join("rank-00003.rpdshard")), 0o600);
    assert_eq!(mode(&site.run(both).join("trace.db")), 0o600);

    site.completed(one);
    assert_training(&site.run(one).join("trace.db"), &work.join("one"), 4, 8);
    assert_status(&site.run(one), "done", "all that was recorded");
    let split = status(&site.run(one).join("trace.status"));
    assert_eq!(split["state"], "done", "{split}");
    assert_eq!(traces(Path::new(split["output"].as_str().unwrap())), 3);

    for (task, name) in [("0", "array-0"), ("1", "array-1")] {
        let task = format!("{array}_{task}");
        site.completed(&task);
        let facts = site.facts(&task);
        let run = site.run(facts["JobId"].parse().unwrap());
        assert_training(&run.join("trace.db"), &work.join(name), 2, 5);
        assert_status(&run, "done", "all that was recorded");
    }

    site.completed(two);
    site.completed(behind);
    assert_training(&site.run(two).join("trace.db"), &work.join("two"), 4, 7);
    assert_status(&site.run(two), "done", "all that was recorded");
    site.completed(behind_tasks);
    for task in [3, 4] {
        let facts = site.facts(format!("{tasks}_{task}"));
        let run = site.run(facts["JobId"].parse().unwrap());
        assert_eq!(ticks_of(&run.join("trace.db"), 0), 20, "{}", site.printed());
        assert_status(&run, "done", "all that was recorded");
    }
    let nobodys = site.submit(&[&site.template("merge.sbatch"), "99999"]);
    assert_eq!(site.ended(nobodys).code, "4:0");
    // Once more is once too often.
    let again = site.user(&[&site.template("rpd-epilog.sh")]).arg(site.run(two)).run().success();
    assert!(again.stderr.contains("nothing to merge"), "{again}");
}

#[test]
fn a_merge_that_loses_a_rank_is_made_by_one_process_under_slurm() {
    let Some(site) = Site::new("a merge that loses a rank") else { return };
    let options = ["-N", "1", "--ntasks-per-node=2", "--output=run.out", &site.template("collect.sbatch")];
    let run = site.submit(&words(&options, &ticks("--ticks 30")));
    site.completed(run);
    // In a step rank 1 dies, as it may in MPI_Init, and the others wait for it.
    let prefix = site.folder.path().join("a prefix/bin");
    let broken = site.work().join("broken");
    fs::create_dir(&broken).unwrap();
    let dies = format!(
        "#!/bin/bash\nif [ -n \"${{SLURM_STEP_NUM_TASKS:-}}\" ]; then\n\
         if [ \"$SLURM_PROCID\" = 1 ]; then kill -SEGV $$; fi\nsleep 600\nfi\nexec '{}' \"$@\"\n",
        prefix.join("rpd-merge").display()
    );
    fs::write(broken.join("rpd-merge"), dies).unwrap();
    fs::set_permissions(broken.join("rpd-merge"), PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}:/usr/bin:/bin", broken.display(), prefix.display());
    let merge = site.template("merge.sbatch");
    let options = ["--output=merge.out", "--ntasks=2", &merge, &run.to_string()];
    let merge = site.submit_with(&[("PATH", &path), ("RPD_SRUN_MPI", "none")], &options);
    site.completed(merge);
    assert!(site.printed().contains("merging in one process"), "{}", site.printed());
    for rank in 0..2 {
        assert_eq!(ticks_of(&site.run(run).join("trace.db"), rank), 30);
    }
    assert_status(&site.run(run), "done", "all that was recorded");
}

#[test]
fn workers_of_torchrun_are_ranks_of_one_run_under_slurm() {
    if !Path::new("/usr/bin/torchrun").exists() {
        return rpd_tests::harness::skip("torchrun", "there is no torchrun here");
    }
    let Some(site) = Site::new("torchrun") else { return };
    let script = site.work().join("train.py");
    fs::write(&script, TORCH).unwrap();
    let template = site.template("torchrun.sbatch");
    // torch 1.13 cannot start with Python 3.11 unless it is told where outputs go.
    let torch = "-r 0:1,1:1 -t 0:1,1:1 --log_dir logs".split(' ').map(str::to_owned);
    let program: Vec<String> = torch.chain([script.display().to_string()]).collect();
    let variables = [("RPD_WORKERS", "2"), ("OMP_NUM_THREADS", "1")];
    let job = site.submit_with(&variables, &words(&["-N", "2", "--output=torch.out", &template], &program));
    site.completed(job);
    for worker in 0..4 {
        assert!(site.printed().contains(&format!("worker {worker} of 4 1024.0")), "{}", site.printed());
    }
    let database = Database::open(&site.run(job).join("trace.db"));
    let ranks = database.counts(
        "SELECT 'rank ' || json_extract(p.extdata, '$.rpd.rank') FROM rocpd_region r JOIN rocpd_info_process p ON r.pid = p.id \
         WHERE r.name_id IN (SELECT id FROM rocpd_string WHERE string = 'allreduce')",
    );
    let wanted = (0..4).map(|rank| (format!("rank {rank}"), 5)).collect();
    assert_eq!(ranks, wanted);
}
