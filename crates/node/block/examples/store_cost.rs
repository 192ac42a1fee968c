//! The cost of the store: processor time per 4 KiB of random reads and writes through a replica in
//! a real directory, next to plain `pread` and `pwrite` on a sparse file in the same run.
//!
//! `cargo run --release -p block --example store_cost [DIRECTORY]`

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use block::ids::{ReplicaId, VolumeId};
use block::store::drive::Driven;
use block::store::files::Directory;
use block::store::files::sim::Rng;
use block::store::geometry::BLOCK;
use block::store::{CreateOptions, NoBases, OpenOptions, Reply, Request, View, crc, create, open};
use bytes::Bytes;

const SIZE: u64 = 1 << 30;
const COUNT: u64 = 50_000;

fn main() {
    let parent = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = parent.join(format!("store-cost-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("the directory can be created");
    measure(&directory);
    std::fs::remove_dir_all(&directory).expect("the directory can be removed");
}

fn measure(directory: &std::path::Path) {
    let data: Bytes = (0..BLOCK).map(|byte| byte as u8).collect();
    let crcs: Vec<u32> = crc::of_blocks(&data).collect();
    let raw = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(directory.join("raw"))
        .expect("a file can be created");
    raw.set_len(SIZE).expect("a sparse file");
    let mut files = Directory::new(directory);
    let options = CreateOptions::new(VolumeId::random(), ReplicaId::random(), SIZE);
    create(&mut files, &options).expect("a replica can be created");
    let replica = open(&mut files, &mut NoBases, OpenOptions::default()).expect("it opens");
    let mut driven = Driven::new(replica, &mut files);
    let mut buffer = vec![0; BLOCK as usize];
    for round in ["first writes", "overwrites"] {
        let plain = time(|offset| raw.write_all_at(&data, offset).expect("a write"));
        let store = time(|offset| {
            let (data, crcs) = (data.clone(), crcs.clone());
            driven.request(Request::Write { offset, data, crcs, fua: false }).expect("a write");
        });
        report(round, plain, store);
    }
    let plain = time(|offset| raw.read_exact_at(&mut buffer, offset).expect("a read"));
    let store = time(|offset| {
        let request = Request::Read { view: View::Head, offset, len: BLOCK };
        let Ok(Reply::Data(found)) = driven.request(request) else { panic!("a read") };
        assert_eq!(found.crcs.len(), 1);
    });
    report("reads", plain, store);
}

/// Microseconds of processor time for one of many calls at the same random places.
fn time(mut call: impl FnMut(u64)) -> f64 {
    let mut rng = Rng::new(1);
    let before = processor_time();
    for _ in 0..COUNT {
        call(rng.below(SIZE / BLOCK) * BLOCK);
    }
    (processor_time() - before) as f64 / COUNT as f64 / 1000.0
}

/// Nanoseconds that this process was on a processor.
fn processor_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").expect("the kernel counts time");
    stat.split(' ').next().and_then(|text| text.parse().ok()).expect("the first is the time")
}

fn report(what: &str, plain: f64, store: f64) {
    let more = store - plain;
    eprintln!("{what}: plain {plain:.2} µs, store {store:.2} µs, difference {more:.2} µs");
}
