//! The ring: written records are read back, torn ends are cut off, and losses are noticed.

use super::*;
use crate::store::files::sim::Rng;

const TAG: u64 = 99;
const PAGES: u32 = 32;

/// A log on a disk that keeps what is durable.
struct Ring {
    bytes: Vec<u8>,
    writer: LogWriter,
}

impl Ring {
    fn new() -> Self {
        let mut ring = Self {
            bytes: vec![0; ring_bytes(PAGES) as usize],
            writer: LogWriter::new(PAGES, TAG, 0, 0, 0),
        };
        ring.writer.append(Record::Checkpoint { work: 0, cursor: Region(0) });
        ring.flush();
        ring
    }

    fn flush(&mut self) {
        while let Some(batch) = self.writer.next_batch(Need::Checkpoint) {
            for (offset, data) in &batch.writes {
                self.bytes[*offset as usize..*offset as usize + data.len()].copy_from_slice(data);
            }
            batch.writes.iter().for_each(|_| self.writer.written());
        }
    }

    fn checkpoint(&mut self) {
        self.writer.append(Record::Checkpoint { work: 0, cursor: Region(0) });
        self.flush();
        self.writer.end_checkpoint();
        self.flush();
    }
}

fn presence(number: u32) -> Record {
    let presence = Presence::new(Blocks::of(number % 512, 1), Blocks::NONE);
    Record::Presence { file: FileNo(number), region: Region(number), delta: -1, presence }
}

#[test]
fn records_are_read_as_they_were_written() {
    let records = [
        Record::Activate(Region(7)),
        Record::Deactivate(Region(u32::MAX)),
        presence(3),
        Record::Checkpoint { work: 4, cursor: Region(5) },
        Record::Count { file: FileNo(1), blocks: 1 << 40 },
        Record::Cursor { work: 2, region: Region(9) },
        Record::Marks(FlushMarks {
            flushed: FlushMark { generation: Generation(3), number: 1 << 40 },
            complete: FlushMark { generation: Generation(2), number: 7 },
        }),
    ];
    for record in records {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(bytes.len(), record.size());
        assert_eq!(Record::decode(&bytes), Some(record));
        assert_eq!(Record::decode(&bytes[..bytes.len() - 1]), None);
    }
}

#[test]
fn the_ring_turns_many_times() {
    let mut ring = Ring::new();
    for turn in 0..500 {
        for number in 0..20 {
            ring.writer.append(presence(turn * 20 + number));
        }
        ring.flush();
        if ring.writer.is_half_full() {
            ring.checkpoint();
        }
        let replay = replay(&ring.bytes, TAG).unwrap();
        assert!(matches!(replay.records[0], Record::Checkpoint { .. }));
        assert!(
            replay.records.iter().any(|record| *record == presence(turn * 20 + 19))
                || replay.records.len() == 1
        );
        assert_eq!(replay.torn, 0);
    }
}

#[test]
fn a_torn_batch_counts_for_nothing_and_its_leftovers_never_return() {
    let mut rng = Rng::new(5);
    for _ in 0..200 {
        let mut ring = Ring::new();
        ring.writer.append(presence(1));
        ring.flush();
        let durable = replay(&ring.bytes, TAG).unwrap().records;
        // A batch of several pages, of which only some reach the disk.
        for number in 0..120 {
            ring.writer.append(presence(1000 + number));
        }
        let batch = ring.writer.next_batch(Need::Checkpoint).unwrap();
        let mut all = true;
        for (offset, data) in &batch.writes {
            for (at, page) in data.chunks(PLACE).enumerate() {
                if rng.one_in(2) {
                    let offset = *offset as usize + at * PLACE;
                    ring.bytes[offset..offset + PLACE].copy_from_slice(page);
                } else {
                    all = false;
                }
            }
        }
        let found = replay(&ring.bytes, TAG).unwrap();
        if all {
            continue;
        }
        // A whole number of pages from the front may count; a page without its predecessor not.
        assert_eq!(found.records[..durable.len()], durable[..]);
        let rest = &found.records[durable.len()..];
        for (at, record) in (1000..).zip(rest) {
            assert_eq!(*record, presence(at));
        }
        // The next session writes over it page by page.
        ring.writer = LogWriter::new(PAGES, TAG, found.next, found.tail, found.last);
        for number in 0..6 {
            ring.writer.append(presence(5000 + number));
            ring.flush();
            let now = replay(&ring.bytes, TAG).unwrap().records;
            assert_eq!(now.last(), Some(&presence(5000 + number)));
            assert_eq!(now.len(), found.records.len() + number as usize + 1);
        }
    }
}

#[test]
fn a_durable_page_that_is_lost_is_damage() {
    let mut ring = Ring::new();
    for number in 0..8 {
        ring.writer.append(presence(number));
        ring.flush();
    }
    for page in 1..7 {
        let mut bytes = ring.bytes.clone();
        bytes[page * PLACE + 100] ^= 4;
        assert_eq!(replay(&bytes, TAG), replay(&ring.bytes, TAG), "there is a copy");
        bytes[page * PLACE + PAGE + 1] ^= 4;
        assert_eq!(replay(&bytes, TAG), Err(LogError::Lost { seq: page as u64 }));
    }
    assert_eq!(replay(&vec![0; ring.bytes.len()], TAG), Err(LogError::Empty));
    assert_eq!(replay(&ring.bytes, TAG + 1), Err(LogError::Empty), "of another replica");
}
