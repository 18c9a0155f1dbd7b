//! A file as Kineto writes it, of any size: steps of operators with python frames above them, launches with their kernels
//! and arrows, copies, memory, and arrows to the backward pass.

use std::io::{self, Write};

/// Operators, and how their inputs look.
const OPERATORS: [(&str, &str, &str); 6] = [
    (
        "aten::addmm",
        "[[4096], [8192, 1024], [1024, 4096], [], []]",
        r#"["float", "float", "float", "Scalar", "Scalar"]"#,
    ),
    (
        "aten::layer_norm",
        "[[8, 1024, 1024], [], [1024], [1024], [], []]",
        r#"["float", "ScalarList", "float", "float", "Scalar", "Scalar"]"#,
    ),
    ("aten::view", "[[8, 1024, 1024], []]", r#"["float", "ScalarList"]"#),
    ("aten::transpose", "[[1024, 4096], [], []]", r#"["float", "Scalar", "Scalar"]"#),
    (
        "aten::_scaled_dot_product_flash_attention",
        "[[8, 16, 1024, 64], [8, 16, 1024, 64], [8, 16, 1024, 64], [], [], [], []]",
        r#"["c10::Half", "c10::Half", "c10::Half", "Scalar", "Scalar", "Scalar", ""]"#,
    ),
    ("autograd::engine::evaluate_function: AddmmBackward0", "[[8192, 4096]]", r#"["float"]"#),
];
const FRAMES: [&str; 4] = [
    "torch/nn/modules/module.py(1553): _call_impl",
    "torch/nn/modules/linear.py(117): forward",
    "transformers/models/llama/modeling_llama.py(712): forward",
    "<built-in function linear>",
];
const KERNELS: [&str; 4] = [
    "Cijk_Alik_Bljk_HHS_BH_Bias_AS_SAV_UserArgs_MT256x128x64_MI16x16x1_SN_LDSB1_AFC1_AFEM1_AFEM1_ASEM1_CLR1_CADS0_DTLA0_DTLB0_DTVA0_DTVB0",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)",
    "attn_fwd.kd",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float>(int, float, c10::Half const*, c10::Half const*, c10::Half const*, float*, float*, c10::Half*)",
];

/// What was written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) events: u64,
    pub(crate) spans: u64,
}

struct Counting<W> {
    sink: W,
    written: Written,
}

impl<W: Write> Counting<W> {
    fn event(&mut self, text: &str) -> io::Result<()> {
        let comma = if self.written.events == 0 { "\n  " } else { ",\n  " };
        self.sink.write_all(comma.as_bytes())?;
        self.sink.write_all(text.as_bytes())?;
        self.written.bytes += (comma.len() + text.len()) as u64;
        self.written.events += 1;
        Ok(())
    }

    fn span(
        &mut self,
        (category, name): (&str, &str),
        (pid, tid): (u64, u64),
        (ts, dur): (u64, u64),
        args: &str,
    ) -> io::Result<()> {
        self.written.spans += 1;
        let (ts, ts_part, dur, dur_part) = (ts / 1000, ts % 1000, dur / 1000, dur % 1000);
        self.event(&format!(
            "{{\n    \"ph\": \"X\", \"cat\": \"{category}\", \"name\": \"{name}\", \"pid\": {pid}, \"tid\": {tid},\n    \"ts\": {ts}.{ts_part:03}, \"dur\": {dur}.{dur_part:03},\n    \"args\": {{\n      {args}\n    }}\n  }}"
        ))
    }

    fn flow(
        &mut self,
        (phase, category): (char, &str),
        id: u64,
        (pid, tid): (u64, u64),
        ts: u64,
    ) -> io::Result<()> {
        let (ts, part) = (ts / 1000, ts % 1000);
        self.event(&format!(
            "{{\n    \"ph\": \"{phase}\", \"id\": {id}, \"pid\": {pid}, \"tid\": {tid}, \"ts\": {ts}.{part:03},\n    \"cat\": \"{category}\", \"name\": \"{category}\"\n  }}"
        ))
    }
}

/// Writes a file of about so many bytes.
pub(crate) fn write(sink: impl Write, most: u64) -> io::Result<Written> {
    let mut out = Counting { sink, written: Written::default() };
    let head = "{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [\n    {\"id\": 0, \"name\": \"AMD Instinct MI300X\", \"totalGlobalMem\": 206141652992}\n  ],\n  \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 0, \"world_size\": 8},\n  \"host_name\": \"node\",\n  \"displayTimeUnit\": \"ms\",\n  \"baseTimeNanoseconds\": 1790857026000000000,\n  \"traceEvents\": [";
    out.sink.write_all(head.as_bytes())?;
    out.written.bytes += head.len() as u64;
    let (host, gpu) = ((4242, 4242), (0, 7));
    let mut now = 4_362_700_179_719_357u64;
    let mut id = 0u64;
    while out.written.bytes < most {
        id += 1;
        let pick = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
        let (name, dims, types) = OPERATORS[pick % OPERATORS.len()];
        let frame = FRAMES[pick / 7 % FRAMES.len()];
        let (start, dur) = (now, 9_000 + (pick % 5000) as u64);
        let args = format!("\"Python parent id\": {}, \"Python id\": {id}, \"Ev Idx\": {}", id / 2, 3 * id);
        out.span(("python_function", frame), host, (start, dur + 2_000), &args)?;
        for (part, nested) in [name, "aten::empty", name].iter().enumerate() {
            let part = part as u64;
            let args = format!(
                "\"External id\": {}, \"Record function id\": 0, \"Sequence number\": {id}, \"Fwd thread id\": 0, \"Concrete Inputs\": [\"\", \"\", \"1\"], \"Input type\": {types}, \"Input Dims\": {dims}, \"Ev Idx\": {}",
                3 * id + part,
                3 * id + part
            );
            out.span(("cpu_op", nested), host, (start + part * 700, dur - part * 1_500), &args)?;
            if part == 0 && id.is_multiple_of(3) {
                out.flow(('s', "fwdbwd"), id, host, start)?;
            }
        }
        if !id.is_multiple_of(4) {
            let args = format!("\"External id\": {}, \"cbid\": 211, \"correlation\": {id}", 3 * id);
            out.span(("cuda_runtime", "hipExtModuleLaunchKernel"), host, (start + 3_000, 1_800), &args)?;
            out.flow(('s', "ac2g"), id, host, start + 3_000)?;
            let args = format!(
                "\"External id\": {}, \"device\": 0, \"stream\": 7, \"correlation\": {id}, \"kernel\": \"\", \"grid\": [{}, 8, 1], \"block\": [256, 1, 1]",
                3 * id,
                pick % 512
            );
            out.span(("kernel", KERNELS[pick / 3 % KERNELS.len()]), gpu, (start + 20_000, dur), &args)?;
            out.flow(('f', "ac2g"), id, gpu, start + 20_000)?;
        }
        if id.is_multiple_of(16) {
            let args = format!(
                "\"External id\": {}, \"device\": 0, \"stream\": 7, \"correlation\": {id}, \"bytes\": 1048576, \"memory bandwidth (GB/s)\": 24.5",
                3 * id
            );
            out.span(("gpu_memcpy", "Memcpy HtoD (Host -> Device)"), gpu, (start + 30_000, 4_000), &args)?;
            let (ts, part) = (now / 1000, now % 1000);
            out.event(&format!(
                "{{\n    \"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": \"[memory]\", \"pid\": 4242, \"tid\": 4242,\n    \"ts\": {ts}.{part:03},\n    \"args\": {{\n      \"Total Reserved\": 2097152, \"Total Allocated\": {pick}, \"Bytes\": 512, \"Addr\": 140230123456, \"Device Id\": 0, \"Device Type\": 1, \"Ev Idx\": {id}\n    }}\n  }}"
            ))?;
        }
        now += dur + 3_000;
    }
    let tail = "\n  ],\n  \"traceName\": \"trace.json\"\n}\n";
    out.sink.write_all(tail.as_bytes())?;
    out.written.bytes += tail.len() as u64;
    out.sink.flush()?;
    Ok(out.written)
}
