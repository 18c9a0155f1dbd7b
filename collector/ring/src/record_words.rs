//! Converts the types of [`crate::record`] to the words of their records in a ring, and back.

use crate::record::{
    CommunicatorBirth, MpiCall, MpiReceive, NewCommunicator, OF_RCCL, RcclCall, RecordedLibrary,
    RequestCompletion,
};

#[inline(always)]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

#[inline(always)]
fn signed_pair(low: Option<i32>, high: Option<i32>) -> u64 {
    pair(low.unwrap_or(0) as u32, high.unwrap_or(0) as u32)
}

/// Returns one bit for each value that is present, the first one lowest.
#[inline(always)]
fn presence<const N: usize>(there: [bool; N]) -> u8 {
    there.into_iter().rev().fold(0, |flags, there| flags << 1 | u8::from(there))
}

impl MpiCall {
    /// Returns the flags byte and the four words.
    #[inline(always)]
    pub(crate) fn words(&self) -> (u8, [u64; 4]) {
        let flags = presence([
            self.comm.is_some(),
            self.peer.is_some(),
            self.root.is_some(),
            self.tag.is_some(),
            self.bytes.is_some(),
            self.seq.is_some(),
        ]);
        let words = [
            self.comm.unwrap_or(0),
            self.bytes.unwrap_or(0) as u64,
            signed_pair(self.peer, self.root),
            pair(self.tag.unwrap_or(0) as u32, self.seq.unwrap_or(0)),
        ];
        (flags, words)
    }

    /// Returns the flags byte and the six words of a call that also receives.
    #[inline(always)]
    pub(crate) fn words_with(&self, receive: &MpiReceive) -> (u8, [u64; 6]) {
        let (flags, [comm, bytes, peer, tag]) = self.words();
        let there = presence([receive.source.is_some(), receive.tag.is_some()]);
        let room = receive.bytes.unwrap_or(-1) as u64;
        (flags | there << 6, [comm, bytes, peer, tag, room, signed_pair(receive.source, receive.tag)])
    }

    /// The reverse of [`MpiCall::words_with`].
    pub(crate) fn from_words_with(function: u32, flags: u8, words: [u64; 6]) -> MpiCall {
        let [comm, bytes, peer, tag, room, source] = words;
        let (source, receive_tag) = halves(source);
        let receive = MpiReceive {
            source: (flags >> 6 & 1 == 1).then_some(source as i32),
            tag: (flags >> 7 & 1 == 1).then_some(receive_tag as i32),
            bytes: Some(room as i64).filter(|room| *room >= 0),
        };
        MpiCall { receive: Some(receive), ..MpiCall::from_words(function, flags, [comm, bytes, peer, tag]) }
    }

    /// The reverse of [`MpiCall::words`].
    pub(crate) fn from_words(function: u32, flags: u8, words: [u64; 4]) -> MpiCall {
        let has = |bit: u8| flags >> bit & 1 == 1;
        let ((peer, root), (tag, seq)) = (halves(words[2]), halves(words[3]));
        MpiCall {
            function,
            comm: has(0).then_some(words[0]),
            peer: has(1).then_some(peer as i32),
            root: has(2).then_some(root as i32),
            tag: has(3).then_some(tag as i32),
            bytes: has(4).then_some(words[1] as i64),
            seq: has(5).then_some(seq),
            receive: None,
        }
    }
}

impl RcclCall {
    /// Returns the flags byte and the four words.
    #[inline(always)]
    pub(crate) fn words(&self) -> (u8, [u64; 4]) {
        let flags = presence([
            self.comm.is_some(),
            self.peer.is_some(),
            self.root.is_some(),
            self.count.is_some(),
            self.datatype.is_some(),
            self.seq.is_some(),
        ]);
        let words = [
            self.comm.unwrap_or(0),
            self.count.unwrap_or(0),
            signed_pair(self.peer, self.root),
            pair(self.datatype.unwrap_or(0), self.seq.unwrap_or(0)),
        ];
        (flags, words)
    }

    /// Returns the flags byte and the five words of a call with a stream.
    #[inline(always)]
    pub(crate) fn words_with(&self, stream: u64) -> (u8, [u64; 5]) {
        let (flags, [comm, count, peer, datatype]) = self.words();
        (flags, [comm, count, peer, datatype, stream])
    }

    /// The reverse of [`RcclCall::words_with`].
    pub(crate) fn from_words_with(function: u32, flags: u8, words: [u64; 5]) -> RcclCall {
        let [comm, count, peer, datatype, stream] = words;
        RcclCall {
            stream: Some(stream),
            ..RcclCall::from_words(function, flags, [comm, count, peer, datatype])
        }
    }

    /// The reverse of [`RcclCall::words`].
    pub(crate) fn from_words(function: u32, flags: u8, words: [u64; 4]) -> RcclCall {
        let has = |bit: u8| flags >> bit & 1 == 1;
        let ((peer, root), (datatype, seq)) = (halves(words[2]), halves(words[3]));
        RcclCall {
            function,
            comm: has(0).then_some(words[0]),
            peer: has(1).then_some(peer as i32),
            root: has(2).then_some(root as i32),
            count: has(3).then_some(words[1]),
            datatype: has(4).then_some(datatype),
            seq: has(5).then_some(seq),
            stream: None,
        }
    }
}

impl RequestCompletion {
    /// Returns the flags byte and the three words.
    pub(crate) fn words(&self) -> (u8, [u64; 3]) {
        let flags = presence([self.source.is_some(), self.tag.is_some(), self.bytes.is_some()]);
        (flags, [self.request, self.bytes.unwrap_or(0) as u64, signed_pair(self.source, self.tag)])
    }

    /// The reverse of [`RequestCompletion::words`].
    pub(crate) fn from_words(flags: u8, words: [u64; 3]) -> RequestCompletion {
        let has = |bit: u8| flags >> bit & 1 == 1;
        let (source, tag) = halves(words[2]);
        RequestCompletion {
            request: words[0],
            source: has(0).then_some(source as i32),
            tag: has(1).then_some(tag as i32),
            bytes: has(2).then_some(words[1] as i64),
        }
    }
}

impl NewCommunicator {
    /// Returns the flags byte and the six words.
    pub(crate) fn words(&self) -> (u8, [u64; 6]) {
        let of_rccl = if self.library == RecordedLibrary::Rccl { OF_RCCL } else { 0 };
        let there = presence([self.size_rank.is_some(), self.parent.is_some()]);
        let (size, rank) = self.size_rank.unwrap_or((0, 0));
        let words = [
            self.handle,
            self.parent.unwrap_or(0),
            self.id,
            pair(size, rank),
            signed_pair(Some(self.leader), Some(self.tag)),
            pair(self.ordinal, self.side.map_or(0, |side| u32::from(side) + 1)),
        ];
        (self.birth as u8 | there << 4 | of_rccl, words)
    }

    /// The reverse of [`NewCommunicator::words`].
    pub(crate) fn from_words(function: u32, flags: u8, words: [u64; 6]) -> Option<NewCommunicator> {
        let ((leader, tag), (ordinal, side)) = (halves(words[4]), halves(words[5]));
        Some(NewCommunicator {
            library: if flags & OF_RCCL == 0 { RecordedLibrary::Mpi } else { RecordedLibrary::Rccl },
            function,
            birth: CommunicatorBirth::from_flags(flags)?,
            handle: words[0],
            parent: (flags >> 5 & 1 == 1).then_some(words[1]),
            id: words[2],
            size_rank: (flags >> 4 & 1 == 1).then_some(halves(words[3])),
            leader: leader as i32,
            tag: tag as i32,
            ordinal,
            side: side.checked_sub(1).and_then(|side| u8::try_from(side).ok()).filter(|side| *side < 2),
        })
    }
}
