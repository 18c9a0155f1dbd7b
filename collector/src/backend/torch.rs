//! PyTorch's profiler, hooked in by a `sitecustomize` that Python imports when it starts.

use super::plan::{Asked, Plan, Unavailable};
use std::path::Path;

/// The hook. It runs in the user's program: see what it promises there.
const HOOK: &str = include_str!("torch/sitecustomize.py");
/// What can be set, and the variable that the hook reads.
const SETTINGS: [(&str, &str); 6] = [
    ("delay", "RPD_TORCH_DELAY"),
    ("duration", "RPD_TORCH_DURATION"),
    ("shapes", "RPD_TORCH_SHAPES"),
    ("stack", "RPD_TORCH_STACK"),
    ("memory", "RPD_TORCH_MEMORY"),
    ("flops", "RPD_TORCH_FLOPS"),
];

pub(super) fn prepare(asked: &Asked<'_>, folder: &Path, plan: &mut Plan) -> Result<(), Unavailable> {
    for argument in asked.arguments {
        let text = argument.to_string_lossy();
        let setting = text.split_once('=').and_then(|(name, value)| {
            Some((SETTINGS.iter().find(|(setting, _)| *setting == name)?.1, value))
        });
        let Some((variable, value)) = setting else {
            let known: Vec<_> = SETTINGS.iter().map(|(setting, _)| *setting).collect();
            return Err(Unavailable(format!(
                "--backend-arg {text}: torch takes {}, as duration=60",
                known.join(", ")
            )));
        };
        if value.parse::<f64>().is_err() && !["on", "true", "yes", "off", "false", "no"].contains(&value) {
            return Err(Unavailable(format!("--backend-arg {text}: {value:?} is no number")));
        }
        plan.variables.push((variable.to_owned(), value.into()));
    }
    let python = folder.join("python");
    let hook = python.join("sitecustomize.py");
    let written = std::fs::create_dir_all(&python).and_then(|()| std::fs::write(&hook, HOOK));
    written.map_err(|error| Unavailable(format!("{}: cannot be written: {error}", hook.display())))?;
    plan.variables.push(("RPD_TORCH_OUTPUT".to_owned(), folder.into()));
    plan.python = Some(python);
    plan.say("backend torch: torch.profiler from the import of torch to the end of the program".to_owned());
    Ok(())
}
