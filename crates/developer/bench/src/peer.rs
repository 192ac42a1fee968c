//! The peer: a bare etcd with the same values and the same durability, in the same run.

use std::time::Instant;

use anyhow::Result;

use crate::figures::{Figures, percentile};
use crate::process::Etcd;

pub(crate) const PUTS: &str = "etcd alone: durable puts/s at 64 clients";

pub(crate) async fn measure(figures: &mut Figures) -> Result<()> {
    let etcd = Etcd::start().await?;
    let client = etcd.connect().await?;
    let value = vec![b'x'; 4096];
    let mut one = client.clone();
    let mut samples = Vec::new();
    for number in 0..300 {
        let begun = Instant::now();
        one.put(format!("/one/{number}"), value.clone(), None).await?;
        samples.push(begun.elapsed());
    }
    figures.add("etcd alone: put p50 at 1 client", percentile(&mut samples, 0.5), "ms");
    let begun = Instant::now();
    let total = 6_400;
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..64 {
        let (mut client, value) = (client.clone(), value.clone());
        workers.spawn(async move {
            for number in 0..total / 64 {
                client.put(format!("/many/{worker}/{number}"), value.clone(), None).await?;
            }
            Ok::<_, etcd_client::Error>(())
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    figures.add(PUTS, total as f64 / begun.elapsed().as_secs_f64(), "/s");
    Ok(())
}
