//! The job of Hydra (MPICH, Intel MPI), which gives its processes no job name.
//!
//! All ranks of a job share the address at which the proxies on all nodes call `mpiexec` back. The address is
//! in the command line of the proxy, which is an ancestor of every rank.

use crate::host::process;
use std::iter;

/// Returns the name of the Hydra job of this process, from the command lines of its ancestors.
pub(crate) fn hydra_job() -> Option<String> {
    let parent = std::os::unix::process::parent_id() as i32;
    iter::once(parent).chain(process::ancestors(parent)).find_map(|pid| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let arguments: Vec<String> =
            command.split(|byte| *byte == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect();
        job_of_proxy(&arguments)
    })
}

/// Returns the job that a proxy serves: host and port of `mpiexec`, and the number of the process group. The
/// number differs between the jobs of one `mpiexec`, such as spawned ones.
fn job_of_proxy(arguments: &[String]) -> Option<String> {
    let program = arguments.first()?.rsplit('/').next()?;
    if !program.starts_with("hydra_") && !program.starts_with("pmi_proxy") {
        return None;
    }
    let value = |option: &str| {
        let at = arguments.iter().position(|argument| argument == option)?;
        arguments.get(at + 1).map(String::as_str)
    };
    let group = value("--pgid").unwrap_or("0");
    let address = match value("--control-port") {
        Some(address) => address.to_owned(),
        None => format!("{}-{}", value("--upstream-host")?, value("--upstream-port")?),
    };
    Some(format!("hydra-{}-{group}", address.replace(':', "-")))
}

#[cfg(test)]
mod tests {
    use super::job_of_proxy;

    #[test]
    fn a_proxy_names_its_job() {
        let job = |text: &str| job_of_proxy(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let mpich = "/usr/bin/hydra_pmi_proxy --control-port n1:43317 --rmk user --pgid 2 --proxy-id 0";
        assert_eq!(job(mpich).as_deref(), Some("hydra-n1-43317-2"));
        let intel = "/opt/bin/hydra_bstrap_proxy --upstream-host n1 --upstream-port 40000 --pgid 0";
        assert_eq!(job(intel).as_deref(), Some("hydra-n1-40000-0"));
        assert_eq!(job("bash --control-port n1:1"), None);
        assert_eq!(job("hydra_pmi_proxy --pgid"), None);
    }
}
