//! Calls of collectives, which are joined over the ranks.

use super::arrows::COLLECTIVE;
use crate::collectives::calls::Function;
use crate::collectives::gather::is_shared;
use crate::trace::item::{ArgValue, TextId, Texts};
use twox_hash::XxHash3_64;

/// Which texts are names of collectives and of communicators that mean the same in all ranks.
#[derive(Debug)]
pub(super) struct Joint {
    /// By the number of the text: `None` where it was not looked at, then the function if it is one.
    functions: Vec<Option<Option<Function>>>,
    comm: TextId,
    seq: TextId,
}

impl Joint {
    pub(super) fn new(texts: &mut Texts) -> Joint {
        Joint { functions: Vec::new(), comm: texts.add("comm"), seq: texts.add("seq") }
    }

    /// The collective function of this name.
    #[inline]
    pub(super) fn function(&mut self, name: TextId, texts: &Texts) -> Option<Function> {
        let place = name.0 as usize;
        if place >= self.functions.len() {
            self.functions.resize(place + 1, None);
        }
        let known = self.functions.get_mut(place)?;
        *known.get_or_insert_with(|| Function::named(texts.get(name).as_bytes()))
    }

    /// The number that all ranks have for a call with these args. `None` where its communicator or number is not
    /// known, or where another rank may call another communicator so.
    pub(super) fn number<'a>(
        &self,
        function: Function,
        args: impl Iterator<Item = (TextId, ArgValue<'a>)>,
        texts: &'a Texts,
    ) -> Option<u64> {
        let (mut comm, mut seq) = (None, None);
        for (name, value) in args {
            if name == self.comm {
                comm = match value {
                    ArgValue::Known(text) => Some(texts.get(text)),
                    ArgValue::Text(text) => Some(text),
                    _ => None,
                };
            } else if name == self.seq {
                seq = match value {
                    ArgValue::Int(seq) => u64::try_from(seq).ok(),
                    ArgValue::Uint(seq) => Some(seq),
                    _ => None,
                };
            }
        }
        let (comm, seq) = (comm.filter(|comm| !comm.is_empty() && is_shared(comm))?, seq?);
        let names = [comm.as_bytes(), function.name().as_bytes()].map(XxHash3_64::oneshot);
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&names[0].to_le_bytes());
        bytes[8..16].copy_from_slice(&names[1].to_le_bytes());
        bytes[16..].copy_from_slice(&seq.to_le_bytes());
        Some(XxHash3_64::oneshot(&bytes) | COLLECTIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_one_collective_have_one_number() {
        let mut texts = Texts::default();
        let mut joint = Joint::new(&mut texts);
        let [reduce, reduce_c, bcast, send] =
            ["MPI_Allreduce", "MPI_Allreduce_c", "MPI_Bcast", "MPI_Send"].map(|name| texts.add(name));
        let (comm, seq) = (texts.add("comm"), texts.add("seq"));
        let mut of = |name, on: &str, number| {
            let function = joint.function(name, &texts)?;
            let args = [(comm, ArgValue::Text(on)), (seq, ArgValue::Int(number))];
            joint.number(function, args.into_iter(), &texts)
        };
        let one = of(reduce, "MPI_COMM_WORLD", 3).unwrap();
        assert_eq!(one >> 63, 1);
        assert_eq!(of(reduce_c, "MPI_COMM_WORLD", 3), Some(one));
        assert_ne!(of(reduce, "MPI_COMM_WORLD", 4), Some(one));
        assert_ne!(of(bcast, "MPI_COMM_WORLD", 3), Some(one));
        assert_ne!(of(reduce, "MPI_COMM_WORLD/1@0", 3), Some(one));
        assert_eq!(of(send, "MPI_COMM_WORLD", 3), None);
        for own in ["MPI_COMM_SELF", "comm-3", "nccl-local-1", ""] {
            assert_eq!(of(reduce, own, 3), None, "{own}");
        }
        assert_eq!(of(reduce, "MPI_COMM_WORLD", -1), None);
    }
}
