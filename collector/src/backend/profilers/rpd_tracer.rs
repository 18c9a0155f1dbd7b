//! The tracer of rocmProfileData, set up as by its `runTracer.sh`: a preloaded library, and a variable with
//! the name of the file.

use crate::backend::request::{BackendPlan, BackendRequest, UnavailableBackend};
use crate::backend::rocm_tools;
use std::path::Path;

const LIBRARY: &str = "librpd_tracer.so";
/// roctx libraries that pass ranges on to the tracer, first that of ROCm 7.
const ROCTX: [&str; 3] = ["librocprofiler-sdk-roctx.so", "libroctx64.so", "libroctx64.so.4"];
/// All processes of a rank write to one file. Ranks have different files.
const FILE: &str = "trace.rpd";

pub(crate) fn prepare(
    request: &BackendRequest<'_>,
    folder: &Path,
    plan: &mut BackendPlan,
) -> Result<(), UnavailableBackend> {
    let tracer = rocm_tools::find_library(&[LIBRARY]).ok_or_else(|| {
        UnavailableBackend::missing("rpd-tracer", &format!("no {LIBRARY} in {}", rocm_tools::LIBRARY_PLACES))
    })?;
    if tracer.to_string_lossy().contains([' ', ':']) {
        return Err(UnavailableBackend(format!(
            "{}: LD_PRELOAD takes no path with a space or a colon; install it elsewhere",
            tracer.display()
        )));
    }
    // Variables configure it.
    for argument in request.arguments {
        let text = argument.to_string_lossy();
        let Some((name, value)) = text.split_once('=').filter(|(name, _)| name.starts_with("RPDT_")) else {
            return Err(UnavailableBackend(format!(
                "--backend-arg {text}: rpd-tracer takes variables, as RPDT_AUTOSTART=0"
            )));
        };
        plan.variables.push((name.to_owned(), value.into()));
    }
    plan.variables.push(("RPDT_FILENAME".to_owned(), folder.join(FILE).into()));
    let roctx = rocm_tools::find_library(&ROCTX);
    plan.note(format!(
        "backend rpd-tracer: {}{}",
        tracer.display(),
        roctx.as_ref().map_or(", without roctx".to_owned(), |roctx| format!(" with {}", roctx.display()))
    ));
    plan.preload.extend(roctx);
    plan.preload.push(tracer);
    Ok(())
}
