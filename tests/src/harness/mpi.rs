use super::job::{Job, JobOutcome};
use std::env;
use std::process::{Command, Stdio};

/// Why tests with `mpirun` cannot run here; `None` where they can.
pub fn mpi_missing() -> Option<&'static str> {
    if env::var("RPD_CI_MPI").is_ok_and(|value| value == "0") {
        return Some("RPD_CI_MPI is 0");
    }
    let version =
        Command::new("mpirun").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match version {
        Ok(status) if status.success() => None,
        _ => Some("mpirun is not here"),
    }
}

/// `mpirun -n RANKS`, to which the program and its arguments are to be added.
pub fn mpirun(ranks: usize) -> Job {
    let mut job = Job::new("mpirun")
        .args(["--oversubscribe", "-n", &ranks.to_string()])
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        // The transports with which start-up never failed.
        .env("OMPI_MCA_pml", "ob1")
        .env("OMPI_MCA_btl", "tcp,self")
        // More ranks than cores: a waiting rank shall not spin.
        .env("OMPI_MCA_mpi_yield_when_idle", "1");
    job.failed_to_start = Some(JobOutcome::failed_to_start);
    job
}

impl JobOutcome {
    /// Whether ranks did not come up, in Open MPI's own words; now and then they do not, on a loaded machine.
    pub fn failed_to_start(&self) -> bool {
        const SIGNS: [&str; 4] = [
            "It looks like MPI_INIT failed",
            "It looks like orte_init failed",
            "ORTE was unable to reliably start",
            "PMIX ERROR",
        ];
        self.code() != Some(0) && SIGNS.iter().any(|sign| self.stderr.contains(sign))
    }
}
