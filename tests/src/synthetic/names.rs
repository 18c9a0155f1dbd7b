use super::random::RandomSource;
use std::sync::Arc;

/// What kernel names are made of, after those of templated GPU libraries.
const HEADS: [&str; 8] = [
    "void blas::tiled_gemm_kernel<",
    "void nn::elementwise_unary<",
    "void nn::layer_norm_backward<",
    "void conv::implicit_gemm_nhwc<",
    "void reduce::block_sum<",
    "void attention::flash_forward<",
    "void optimizer::fused_adamw<",
    "void scatter::index_put_accumulate<",
];
const PIECES: [&str; 10] = [
    "float, ",
    "half_t, ",
    "bfloat16_t, ",
    "Tile<128, 64, 32>, ",
    "Tile<256, 128, 16>, ",
    "Layout<RowMajor, ColumnMajor>, ",
    "Pipeline<Stages<3>, AsyncCopy>, ",
    "std::array<char*, 4>, ",
    "Epilogue<Bias, Relu, Scale<float>>, ",
    "IteratorPolicy<Swizzle<8>, Vector<16>>, ",
];

const PHASES: [&str; 20] = [
    "data",
    "forward",
    "backward",
    "allreduce",
    "step",
    "epoch",
    "load batch",
    "to device",
    "encoder",
    "decoder",
    "attention",
    "mlp",
    "loss",
    "checkpoint",
    "zero_grad",
    "clip gradients",
    "bucket 0",
    "bucket 1",
    "evaluation",
    "log",
];

/// The names of a run. Most are shared by all ranks.
#[derive(Clone, Debug)]
pub(super) struct NamePool {
    kernels: Vec<Arc<str>>,
    ranges: Vec<Arc<str>>,
}

impl NamePool {
    pub(super) fn new(seed: u64, kernels: usize) -> NamePool {
        let mut random = RandomSource::new(&[seed, 1]);
        let kernels = (0..kernels.max(1)).map(|i| kernel_name(&mut random, i)).collect();
        let plain = PHASES.iter().map(|name| Arc::from(*name));
        let layers = (0..20).map(|i| format!("layer {i} of the network, forward and backward").into());
        NamePool { kernels, ranges: plain.chain(layers).collect() }
    }

    /// The kernels of one rank: those of the job, each tenth in a variant of its own.
    pub(super) fn kernels(&self, rank: u32) -> Vec<Arc<str>> {
        let variant = |(i, name): (usize, &Arc<str>)| match i % 10 {
            7 => format!("{name} [specialised for rank {rank}]").into(),
            _ => name.clone(),
        };
        self.kernels.iter().enumerate().map(variant).collect()
    }

    pub(super) fn range(&self, random: &mut RandomSource) -> Arc<str> {
        // A few names take most of the calls.
        let i = random.index(self.ranges.len()).min(random.index(self.ranges.len()));
        self.ranges[i].clone()
    }
}

/// A name of 200 to 2000 characters.
fn kernel_name(random: &mut RandomSource, i: usize) -> Arc<str> {
    let length = random.between(200, 1_950) as usize;
    let mut name = HEADS[i % HEADS.len()].to_owned();
    while name.len() < length - 20 {
        name += random.pick::<&str>(&PIECES);
    }
    name.truncate(1_980);
    name += &format!("{i}>(Params)");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_names_have_200_to_2000_characters_and_are_distinct() {
        let names = NamePool::new(3, 60);
        let distinct: std::collections::BTreeSet<_> = names.kernels.iter().collect();
        assert_eq!(distinct.len(), 60);
        assert!(names.kernels.iter().all(|n| (190..=2000).contains(&n.len())));
    }
}
