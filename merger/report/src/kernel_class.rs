//! Classes of kernels, by their names.

use rpd_calls::COMMUNICATING;
use serde::{Deserialize, Serialize};

/// Purpose of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(crate) enum KernelClass {
    Communication,
    Memory,
    Attention,
    Convolution,
    Gemm,
    Normalization,
    Reduction,
    Elementwise,
    Other,
}

/// Words in the names of the kernels of each class, in lower case. The first class with a word in the name is that of the
/// kernel. docs/GPU.md lists them.
const WORDS: [(KernelClass, &[&str]); 8] = [
    (KernelClass::Communication, &COMMUNICATING),
    (KernelClass::Memory, &["memcpy", "memset", "copybuffer", "fillbuffer"]),
    (KernelClass::Attention, &["attention", "attn", "fmha", "flash"]),
    (KernelClass::Convolution, &["conv", "winograd", "miopen"]),
    (KernelClass::Gemm, &["gemm", "cijk_", "matmul", "cutlass", "gemv"]),
    (KernelClass::Normalization, &["norm"]),
    (KernelClass::Reduction, &["reduce", "softmax"]),
    (KernelClass::Elementwise, &["elementwise", "vectorized"]),
];

impl KernelClass {
    /// Returns the class of a kernel.
    pub(crate) fn of(name: &str) -> KernelClass {
        let name = name.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        WORDS.iter().find(|(_, words)| has(words)).map_or(KernelClass::Other, |(class, _)| *class)
    }

    /// Returns the name of the class.
    pub(crate) fn name(self) -> &'static str {
        match self {
            KernelClass::Communication => "communication",
            KernelClass::Memory => "memory",
            KernelClass::Attention => "attention",
            KernelClass::Convolution => "convolution",
            KernelClass::Gemm => "gemm",
            KernelClass::Normalization => "normalization",
            KernelClass::Reduction => "reduction",
            KernelClass::Elementwise => "elementwise",
            KernelClass::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_real_kernels_have_their_class() {
        for (name, class) in [
            ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", KernelClass::Communication),
            ("Memset (Device)", KernelClass::Memory),
            ("__amd_rocclr_copyBuffer", KernelClass::Memory),
            ("Cijk_Alik_Bljk_BBS_BH_MT128x128x32_MI16x16x16x1", KernelClass::Gemm),
            ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80", KernelClass::Attention),
            ("miopenSp3AsmConv_v21_1_2_gfx9_fp16", KernelClass::Convolution),
            (
                "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>",
                KernelClass::Normalization,
            ),
            ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", KernelClass::Reduction),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::AddOp>",
                KernelClass::Elementwise,
            ),
            ("_ZN4mine6kernelEv", KernelClass::Other),
        ] {
            assert_eq!(KernelClass::of(name), class, "{name}");
        }
    }
}
