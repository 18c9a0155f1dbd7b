//! Builds packets by hand as Perfetto's own library, and therefore rocprof-sys, writes them. Field numbers are
//! those of protos/perfetto/trace.

#[derive(Clone, Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(crate) fn uint(mut self, field: u32, value: u64) -> Message {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    pub(crate) fn fixed64(mut self, field: u32, value: u64) -> Message {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn text(mut self, field: u32, value: impl AsRef<[u8]>) -> Message {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.as_ref().len() as u64);
        self.0.extend(value.as_ref());
        self
    }

    pub(crate) fn with(self, field: u32, message: Message) -> Message {
        self.text(field, message.0)
    }
}

pub(crate) fn message() -> Message {
    Message::default()
}

/// A trace of packets.
#[derive(Default)]
pub(crate) struct Trace(pub(crate) Vec<u8>);

pub(crate) const CLEARED: u64 = 3;
pub(crate) const NEEDS: u64 = 2;
pub(crate) const INCREMENTAL: u64 = 64;
pub(crate) const BOOTTIME: u64 = 6;

pub(crate) const BEGIN: u64 = 1;
pub(crate) const END: u64 = 2;
pub(crate) const INSTANT: u64 = 3;
pub(crate) const COUNTER: u64 = 4;

impl Trace {
    pub(crate) fn packet(&mut self, packet: Message) -> &mut Trace {
        self.0.extend(message().with(1, packet).0);
        self
    }

    /// Adds the first packet of a sequence: its clock, which counts differences in µs, and its track.
    pub(crate) fn start(&mut self, sequence: u64, track: u64, boottime: u64) -> &mut Trace {
        let clock = |id, time| message().uint(1, id).uint(2, time);
        let snapshot = message()
            .with(1, clock(BOOTTIME, boottime))
            .with(1, clock(INCREMENTAL, boottime / 1000).uint(3, 1).uint(4, 1000));
        let defaults = message().uint(58, INCREMENTAL).with(11, message().uint(11, track));
        let packet = message().uint(10, sequence).uint(13, CLEARED).with(59, defaults).with(6, snapshot);
        self.packet(packet)
    }

    /// Adds a track; `what` is the field and message that describe its kind.
    pub(crate) fn track(
        &mut self,
        uuid: u64,
        parent: u64,
        name: &str,
        what: Option<(u32, Message)>,
    ) -> &mut Trace {
        let mut track = message().uint(1, uuid).text(2, name);
        if parent > 0 {
            track = track.uint(5, parent);
        }
        if let Some((field, what)) = what {
            track = track.with(field, what);
        }
        self.packet(message().uint(10, 1).with(60, track))
    }

    pub(crate) fn process(&mut self, uuid: u64, pid: u64, name: &str) -> &mut Trace {
        self.track(uuid, 0, "", Some((3, message().uint(1, pid).text(6, name))))
    }

    pub(crate) fn thread(
        &mut self,
        uuid: u64,
        parent: u64,
        (pid, tid): (u64, u64),
        name: &str,
    ) -> &mut Trace {
        self.track(uuid, parent, "", Some((4, message().uint(1, pid).uint(2, tid).text(5, name))))
    }

    /// Adds an event at a time of the sequence's own clock, in µs since the previous packet.
    pub(crate) fn event(&mut self, sequence: u64, after: u64, event: Message) -> &mut Trace {
        self.packet(message().uint(10, sequence).uint(13, NEEDS).uint(8, after).with(11, event))
    }

    /// Adds an event at a time of BOOTTIME, in ns.
    pub(crate) fn event_at(&mut self, sequence: u64, at: u64, event: Message) -> &mut Trace {
        let packet = message().uint(10, sequence).uint(13, NEEDS).uint(8, at).uint(58, BOOTTIME);
        self.packet(packet.with(11, event))
    }

    /// Adds an interned text.
    pub(crate) fn intern(&mut self, sequence: u64, table: u32, iid: u64, text: &str) -> &mut Trace {
        let entry = message().uint(1, iid).text(2, text);
        self.packet(message().uint(10, sequence).uint(13, NEEDS).with(12, message().with(table, entry)))
    }
}
