//! Which backends the user chose, and whether they can run together.

use super::rocm_tools;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A tool that records what a rank does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum BackendKind {
    /// Our own library: roctx, MPI and RCCL calls, and the counters of the node.
    Native,
    /// AMD's `rocprofv3`.
    Rocprofv3,
    /// AMD's `rocprof-sys-sample` (Omnitrace).
    RocprofSys,
    /// The tracer of rocmProfileData.
    RpdTracer,
    /// PyTorch's profiler.
    Torch,
}

/// All backends with their names.
const BACKENDS: [(BackendKind, &str); 5] = [
    (BackendKind::Native, "native"),
    (BackendKind::Rocprofv3, "rocprofv3"),
    (BackendKind::RocprofSys, "rocprof-sys"),
    (BackendKind::RpdTracer, "rpd-tracer"),
    (BackendKind::Torch, "torch"),
];
const NONE: &str = "none";
const AUTO: &str = "auto";
/// The device of AMD's driver. Without it, a GPU profiler has nothing to record.
const DEVICE: &str = "/dev/kfd";
/// Variable that names another file in place of [`DEVICE`].
const DEVICE_VARIABLE: &str = "RPD_GPU_DEVICE";

impl BackendKind {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        BACKENDS.iter().find(|(backend, _)| *backend == self).map_or("", |(_, name)| name)
    }

    /// Whether it registers with ROCm, which allows one such tool per process.
    fn registers_with_rocm(self) -> bool {
        self != BackendKind::Native
    }

    /// Returns which words of [`rpd_ring::message::TRACED`] it records in place of the native library.
    fn records(self) -> &'static [&'static str] {
        match self {
            BackendKind::Native | BackendKind::Torch => &[],
            BackendKind::Rocprofv3 | BackendKind::RpdTracer => &["roctx"],
            BackendKind::RocprofSys => &["roctx", "mpi", "rccl"],
        }
    }

    /// Whether it starts the command itself. Such a profiler takes a configuration file, and writes its files
    /// only when the process ends normally or by SIGTERM.
    pub fn starts_command(self) -> bool {
        matches!(self, BackendKind::Rocprofv3 | BackendKind::RocprofSys)
    }
}

/// The value of `--backend`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum BackendChoice {
    /// Choose by what is installed.
    #[default]
    Auto,
    /// These, each once. None of them for identity and clocks alone.
    These(Vec<BackendKind>),
}

/// An unknown backend, or backends that cannot run together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackendChoiceError {
    /// The backend does not exist.
    #[error(
        "there is no backend {0:?}; choose native, rocprofv3, rocprof-sys, rpd-tracer, torch, none or auto"
    )]
    Unknown(String),
    /// rocprof version 1 or 2.
    #[error("{0:?} writes CSV without a time base that could be merged; use rocprofv3, its successor")]
    Predecessor(String),
    /// `none` or `auto` together with others.
    #[error("{0:?} cannot be combined with other backends")]
    Alone(&'static str),
    /// Two backends that register with ROCm.
    #[error(
        "{} and {} cannot run together: ROCm serves one tool per process, and the other would see nothing or \
         break the first; run them in two jobs, or on different ranks", .0.name(), .1.name()
    )]
    Twice(BackendKind, BackendKind),
    /// The library records what a profiler records as well.
    #[error(
        "{} and native both intercept {what}, so calls would be lost or counted twice; use \
         --trace {instead} to leave that to {}", .backend.name(), .backend.name()
    )]
    Overlap {
        /// The profiler.
        backend: BackendKind,
        /// The calls that both record.
        what: String,
        /// The selection that native may record besides the profiler.
        instead: String,
    },
}

impl FromStr for BackendChoice {
    type Err = BackendChoiceError;

    fn from_str(text: &str) -> Result<BackendChoice, BackendChoiceError> {
        let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        for alone in [NONE, AUTO] {
            if words.contains(&alone) && words.len() > 1 {
                return Err(BackendChoiceError::Alone(alone));
            }
        }
        if words == [AUTO] {
            return Ok(BackendChoice::Auto);
        }
        let mut chosen = Vec::new();
        for word in words.into_iter().filter(|word| *word != NONE) {
            let known = BACKENDS.iter().find(|(_, name)| *name == word);
            match known {
                Some((backend, _)) if !chosen.contains(backend) => chosen.push(*backend),
                Some(_) => {}
                None if matches!(word, "rocprof" | "rocprofv2" | "rocprofv1") => {
                    return Err(BackendChoiceError::Predecessor(word.to_owned()));
                }
                None => return Err(BackendChoiceError::Unknown(word.to_owned())),
            }
        }
        if text.trim().is_empty() {
            return Err(BackendChoiceError::Unknown(String::new()));
        }
        let mut listeners = chosen.iter().filter(|backend| backend.registers_with_rocm());
        if let (Some(first), Some(second)) = (listeners.next(), listeners.next()) {
            return Err(BackendChoiceError::Twice(*first, *second));
        }
        chosen.sort();
        Ok(BackendChoice::These(chosen))
    }
}

impl fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackendChoice::Auto => f.write_str(AUTO),
            BackendChoice::These(chosen) if chosen.is_empty() => f.write_str(NONE),
            BackendChoice::These(chosen) => {
                let names: Vec<_> = chosen.iter().map(|backend| backend.name()).collect();
                f.write_str(&names.join(","))
            }
        }
    }
}

impl BackendChoice {
    /// Checks whether the library may record these words of [`rpd_ring::message::TRACED`] besides the other
    /// backends.
    ///
    /// # Errors
    /// If both would record the same calls.
    pub fn check(&self, library: &[&'static str]) -> Result<(), BackendChoiceError> {
        let BackendChoice::These(chosen) = self else { return Ok(()) };
        if !chosen.contains(&BackendKind::Native) {
            return Ok(());
        }
        for backend in chosen {
            let both: Vec<_> =
                library.iter().copied().filter(|word| backend.records().contains(word)).collect();
            if !both.is_empty() {
                let rest: Vec<_> = rpd_ring::message::TRACED
                    .iter()
                    .copied()
                    .filter(|word| !backend.records().contains(word))
                    .chain(["system"])
                    .collect();
                let (what, instead) = (both.join(" and "), rest.join(","));
                return Err(BackendChoiceError::Overlap { backend: *backend, what, instead });
            }
        }
        Ok(())
    }

    /// Returns those of these words that our own library may record besides the other backends.
    pub fn beside(&self, library: &[&'static str]) -> Vec<&'static str> {
        let BackendChoice::These(chosen) = self else { return library.to_vec() };
        let is_free = |word: &&str| !chosen.iter().any(|backend| backend.records().contains(word));
        library.iter().copied().filter(is_free).collect()
    }

    /// Returns the backends that run. `auto` is native alone if `--trace` names calls, which native records.
    pub fn resolve(&self, names_calls: bool) -> ResolvedBackends {
        match self {
            BackendChoice::These(chosen) => {
                ResolvedBackends { backends: chosen.clone(), reason: None, gpu: None }
            }
            BackendChoice::Auto if names_calls => ResolvedBackends {
                backends: vec![BackendKind::Native],
                reason: Some("backend auto: native, since --trace says what it records".to_owned()),
                gpu: None,
            },
            BackendChoice::Auto => automatic(),
        }
    }
}

/// The backends of a run, and why `auto` chose them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvedBackends {
    /// Each once. None for identity and clocks alone.
    pub backends: Vec<BackendKind>,
    /// Reason for the choice of `auto`.
    pub reason: Option<String>,
    /// The device of the GPU, if `auto` found one.
    pub gpu: Option<PathBuf>,
}

/// Chooses native, and rocprofv3 if both it and a GPU are there.
fn automatic() -> ResolvedBackends {
    let device = std::env::var_os(DEVICE_VARIABLE).filter(|path| !path.is_empty());
    let device = device.map_or_else(|| PathBuf::from(DEVICE), PathBuf::from);
    let gpu = Some(device.clone()).filter(|device| device.exists());
    let profiler = rocm_tools::find(BackendKind::Rocprofv3.name());
    let (backends, why) = choose(profiler.as_deref(), gpu.is_some(), &device);
    let names: Vec<_> = backends.iter().map(|backend| backend.name()).collect();
    let reason = format!("backend auto: {}, since {why}", names.join(" and "));
    ResolvedBackends { backends, reason: Some(reason), gpu }
}

fn choose(profiler: Option<&Path>, has_gpu: bool, device: &Path) -> (Vec<BackendKind>, String) {
    let device = device.display();
    match (profiler.map(Path::display), has_gpu) {
        (Some(path), true) => {
            (vec![BackendKind::Native, BackendKind::Rocprofv3], format!("{path} and {device} are there"))
        }
        (Some(path), false) => {
            (vec![BackendKind::Native], format!("{path} is there, and no {device} of a GPU"))
        }
        (None, true) => (
            vec![BackendKind::Native],
            format!("{device} is there, and no rocprofv3 in {}", rocm_tools::PLACES),
        ),
        (None, false) => (vec![BackendKind::Native], format!("there are neither rocprofv3 nor {device}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_backends_and_none_stands_alone() {
        let parsed = |text: &str| text.parse::<BackendChoice>();
        assert_eq!(parsed("auto"), Ok(BackendChoice::Auto));
        assert_eq!(parsed("none"), Ok(BackendChoice::These(Vec::new())));
        assert_eq!(parsed("torch, native,torch").unwrap().to_string(), "native,torch");
        for bad in ["", "rocprof4", "none,torch", "auto,native", "rocprofv3,rpd-tracer", "rocprofv3,torch"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        assert!(parsed("rocprof").unwrap_err().to_string().contains("rocprofv3"));
    }

    #[test]
    fn two_that_record_the_same_are_refused_with_an_alternative() {
        let check =
            |choice: &str, library: &[&'static str]| choice.parse::<BackendChoice>().unwrap().check(library);
        assert_eq!(check("native,torch", &["roctx", "mpi", "rccl"]), Ok(()));
        assert_eq!(check("rocprofv3,native", &["mpi", "rccl"]), Ok(()));
        assert_eq!(check("rocprofv3", &["roctx"]), Ok(()));
        let refused = check("rocprofv3,native", &["roctx", "mpi"]).unwrap_err().to_string();
        assert!(refused.contains("roctx") && refused.contains("--trace mpi,rccl,system"), "{refused}");
        assert!(check("rocprof-sys,native", &["mpi"]).is_err());
    }

    #[test]
    fn auto_has_a_profiler_for_a_gpu_and_native_everywhere() {
        let device = Path::new("/dev/kfd");
        for (profiler, has_gpu, names, words) in [
            (Some(Path::new("/opt/rocprofv3")), true, "native,rocprofv3", "are there"),
            (Some(Path::new("/opt/rocprofv3")), false, "native", "no /dev/kfd of a GPU"),
            (None, true, "native", "no rocprofv3 in"),
            (None, false, "native", "neither"),
        ] {
            let (backends, why) = choose(profiler, has_gpu, device);
            assert_eq!(BackendChoice::These(backends).to_string(), names);
            assert!(why.contains(words), "{why}");
        }
        assert_eq!(BackendChoice::Auto.resolve(true).backends, [BackendKind::Native]);
    }
}
